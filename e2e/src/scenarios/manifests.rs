//! Tests which manifests the API server accepts and which it refuses, with strict server-side apply.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, DEFINITION},
    manifests::{agent, documents, files},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    every_good_manifest_is_accepted,
    every_bad_manifest_is_refused_with_a_message,
);

pub(super) const ALONE: &[Scenario] = scenarios!(Serial:
    an_agent_from_before_the_sidecar_can_be_changed_and_deleted,
);

async fn every_good_manifest_is_accepted(ns: Namespace) -> Result<()> {
    let mut wrong = Vec::new();
    for (path, text) in files(&ns.env.file("e2e/manifests/accept"))? {
        for manifest in documents(&text).with_context(|| format!("in {}", path.display()))? {
            if let Err(error) = ns.would_apply(&manifest).await {
                wrong.push(format!("{}: {error}", path.display()));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
    Ok(())
}

async fn every_bad_manifest_is_refused_with_a_message(ns: Namespace) -> Result<()> {
    let mut wrong = Vec::new();
    for (path, text) in files(&ns.env.file("e2e/manifests/reject"))? {
        let path = path.display();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# message: "));
        let expected = expected.with_context(|| format!("{path}: no `# message: ` in its first line"))?;
        let is_said = |error: &str| match ns.env.has_oldest_version() {
            true => without_values(error).contains(&without_values(expected)),
            false => error.contains(expected),
        };
        for manifest in documents(&text).with_context(|| format!("in {path}"))? {
            match ns.would_apply(&manifest).await {
                Ok(_) => wrong.push(format!("{path}: accepted")),
                Err(error) if is_said(&error.to_string()) => {}
                Err(error) => wrong.push(format!("{path}: {error}")),
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
    Ok(())
}

/// Leaves out the values that rules refuse: the oldest API server names their types instead.
fn without_values(text: &str) -> String {
    let mut parts = text.split("Invalid value: ");
    let first = parts.next().unwrap_or_default();
    parts.fold(first.to_owned(), |plain, part| {
        let quoted = part.strip_prefix('"').and_then(|rest| rest.split_once("\": "));
        plain + "Invalid value: " + quoted.map_or(part, |(_, rest)| rest)
    })
}

/// Tests an agent whose port is reserved for the sidecar, but was allowed by an older CRD.
async fn an_agent_from_before_the_sidecar_can_be_changed_and_deleted(ns: Namespace) -> Result<()> {
    let name = format!("{}.{}", AGENT.plural, crds::GROUP);
    let versions = ns.env.all(DEFINITION).get(&name).await?.at("/spec/versions").clone();
    let mut older = versions.clone();
    let rules = older.pointer_mut("/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations");
    let rules = rules.and_then(Value::as_array_mut).context("the spec has no rules")?;
    rules.retain(|rule| rule["optionalOldSelf"].is_null());

    let refused = |name: &'static str| {
        let ns = ns.clone();
        async move { ns.would_apply(&agent(name, json!({"port": 8888}))).await.is_err() }
    };
    define(&ns, &name, older).await?;
    let old = async {
        poll(REPORT_TIMEOUT, "the older definition", || async { Ok((!refused("old").await).then_some(())) }).await?;
        ns.apply(&agent("old", json!({"port": 8888}))).await
    };
    let old = old.await;
    define(&ns, &name, versions).await?;
    old?;
    poll(REPORT_TIMEOUT, "the present definition", || async { Ok(refused("another").await.then_some(())) }).await?;

    ns.await_agent_not_ready("old", REPORT_TIMEOUT, "Failed", &["InvalidSpec", "port 8888"]).await?;
    ns.edit(AGENT, "old", json!({"metadata": {"labels": {"team": "blue"}}, "spec": {"strategy": "other"}})).await?;
    ns.edit(AGENT, "old", json!({"spec": {"port": 8000}})).await?;
    ns.await_agent_running("old").await?;
    let back = ns.edit(AGENT, "old", json!({"spec": {"port": 8888}})).await;
    ensure!(back.is_err(), "it may go back to the sidecar's port");
    ns.delete(AGENT, "old").await?;
    ns.until_gone(AGENT, "old", START_TIMEOUT).await
}

async fn define(ns: &Namespace, name: &str, versions: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    ns.env.all(DEFINITION).patch(name, &PatchParams::default(), &patch).await.context("change the definition")?;
    Ok(())
}
