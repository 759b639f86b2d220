//! Tests that reconcile loops end: a refused object that is stopped, two operators for one object, and a CRD that is older
//! than the operator.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use e2e::audit::{AuditEvent, AuditMark, describe_requests};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    kinds::{AGENT, DEFINITION, SERVICE},
    manifests::agent,
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_stopped_agent_that_is_refused_stays_failed_in_silence,
    two_operators_over_one_agent_spare_and_name_each_other,
);
pub(super) const ALONE: &[Scenario] = scenarios!(Exclusive:
    an_older_crd_is_named_and_slows_its_objects_down_until_it_is_upgraded,
);

/// Time for which writes are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Limit of writes of one object's status in that time: one per phase, and one that reports the problem.
const FEW: usize = 5;

/// Returns the operator's writes of this agent's status since the mark.
async fn writes(ns: &Namespace, mark: AuditMark, name: &str) -> Result<Vec<AuditEvent>> {
    let mut requests = ns.operator_requests(mark).await?;
    requests.retain(|it| it.is_write() && it.resource() == "agents/status" && it.name() == name);
    Ok(requests)
}

async fn a_stopped_agent_that_is_refused_stays_failed_in_silence(ns: Namespace) -> Result<()> {
    let theirs = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"},
        "spec": {"selector": {"app": "stranger"}, "ports": [{"port": 80}]},
    });
    ns.create_object(&theirs).await?;
    let mark = ns.mark().await?;
    let stopped = |name, mut fields: Value| {
        fields["replicas"] = json!(0);
        agent(name, fields)
    };
    for stopped in [
        stopped("taken", json!({})),
        stopped("misnamed", json!({"serviceAccountName": "{{x}}"})),
        stopped("control", json!({"systemPrompt": "be nice\u{7f} and short"})),
    ] {
        // Sent as JSON: an apply refuses characters that YAML forbids.
        ns.create_object(&stopped).await?;
    }
    // The absence of writes can only be observed for a limited time.
    sleep(WINDOW).await;
    for name in ["taken", "misnamed", "control"] {
        let found = writes(&ns, mark, name).await?;
        ensure!(found.len() <= FEW, "{name}: {}", describe_requests(&found));
    }
    for (name, reason) in [("taken", "NameConflict"), ("misnamed", "serviceAccountName")] {
        let failed = ns.await_agent_not_ready(name, REPORT_TIMEOUT, "Failed", &[reason]).await?;
        let message = failed.condition("Ready").message.chars().count();
        ensure!((1..=300).contains(&message), "{message} characters: {}", failed.describe());
        ensure!(!failed.condition("Ready").contains("regex"), "{}", failed.describe());
    }
    ns.until(AGENT, "control", START_TIMEOUT, "is stopped", |it| it.phase() == "Terminated").await?;
    let mark = ns.mark().await?;
    sleep(WINDOW).await;
    for name in ["taken", "misnamed", "control"] {
        let found = writes(&ns, mark, name).await?;
        ensure!(found.is_empty(), "{name}, later: {}", describe_requests(&found));
    }
    ns.delete(SERVICE, "taken").await?;
    ns.until(AGENT, "taken", START_TIMEOUT, "goes on", |it| it.phase() == "Terminated").await?;
    Ok(())
}

const FIELD: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/renderVersion";

async fn an_older_crd_is_named_and_slows_its_objects_down_until_it_is_upgraded(ns: Namespace) -> Result<()> {
    ns.apply(&agent("probe", json!({"replicas": 0}))).await?;
    ns.until(AGENT, "probe", START_TIMEOUT, "is stopped", |it| it.phase() == "Terminated").await?;
    let name = format!("{}.{}", AGENT.plural, crds::GROUP);
    let definition = ns.env.all(DEFINITION).get(&name).await.context("get the CRD")?;
    let field = definition.at(FIELD).clone();
    ensure!(!field.is_null(), "the CRD has no {FIELD}");
    change(&ns, &name, json!([{"op": "remove", "path": FIELD}])).await?;
    let result = with_an_older_crd(&ns).await;
    change(&ns, &name, json!([{"op": "add", "path": FIELD, "value": field}])).await?;
    result?;
    ns.until(AGENT, "slowed", Duration::from_secs(120), "runs with the CRD upgraded", Object::is_running).await?;
    let slowed = ns.get(AGENT, "slowed").await?;
    ensure!(slowed.condition("CRDOutdated").status.is_empty(), "{}", slowed.describe());
    Ok(())
}

async fn with_an_older_crd(ns: &Namespace) -> Result<()> {
    poll(START_TIMEOUT, "the API server drops the field", || async {
        let patch = Patch::Merge(json!({"status": {"renderVersion": 99}}));
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let answer = ns.api(AGENT).patch_status("probe", &params, &patch).await?;
        Ok(answer.at("/status/renderVersion").is_null().then_some(()))
    })
    .await?;
    let mark = ns.mark().await?;
    ns.apply(&agent("slowed", json!({}))).await?;
    sleep(WINDOW).await;
    let first = writes(ns, mark, "slowed").await?;
    ensure!(first.len() <= FEW, "{}", describe_requests(&first));
    let words = ["CRDOutdated", "status.renderVersion", "helm upgrade recif-crds"];
    let sentence = |it: &Object| words.iter().all(|word| it.condition("Ready").contains(word));
    ns.until(AGENT, "slowed", START_TIMEOUT, "says that the CRD is old", sentence).await?;
    let mark = ns.mark().await?;
    sleep(WINDOW).await;
    let later = writes(ns, mark, "slowed").await?;
    ensure!(later.len() <= 2, "later: {}", describe_requests(&later));
    Ok(())
}

async fn change(ns: &Namespace, name: &str, patch: Value) -> Result<()> {
    let patch = Patch::Json::<()>(serde_json::from_value(patch)?);
    let changed = ns.env.all(DEFINITION).patch(name, &PatchParams::default(), &patch).await;
    changed.map(drop).context("change the CRD")
}

async fn two_operators_over_one_agent_spare_and_name_each_other(ns: Namespace) -> Result<()> {
    let before = ns.start(&agent("shared", json!({}))).await?.last_seq();
    let second = format!("{}/second", ns.name);
    let mut command = ns.env.recif_command();
    command
        .args(["operator", "--namespaces", &ns.name, "--operator-namespace", &ns.name, "--lease-name", "second"])
        .args(["--listen", "127.0.0.1:0", "--gateway-service", ""])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut process = command.spawn().context("start a second operator")?;
    let wrote = |it: &Object| it.text("/status/managedBy") == second && it.is_running();
    ns.until(AGENT, "shared", START_TIMEOUT, "is written by the second operator", wrote).await?;
    // A write of the other operator does not trigger a reconcile, an edit by a user does so in both.
    let named = poll(START_TIMEOUT, "Ready says which other operator writes", || async {
        let label = json!({"metadata": {"labels": {"touched": ns.get(AGENT, "shared").await?.revision().to_string()}}});
        ns.edit(AGENT, "shared", label).await?;
        sleep(Duration::from_secs(1)).await;
        let agent = ns.get(AGENT, "shared").await?;
        Ok(agent.condition("Ready").contains("OtherOperator").then_some(agent))
    })
    .await?;
    let moves = named.last_seq() - before;
    ensure!(moves <= 10, "{moves} moves before it is said: {}", named.describe());
    ensure!(named.condition("Ready").contains(&second), "{}", named.describe());
    process.kill().await.context("end the second operator")?;
    // With one operator left: it is idle after a minute, and a new configuration is applied at once except for the back-off
    // of the contention.
    ns.edit(AGENT, "shared", json!({"spec": {"systemPrompt": "go on"}})).await?;
    let alone = |it: &Object| it.is_running() && it.text("/status/managedBy") != second;
    ns.until(AGENT, "shared", Duration::from_secs(180), "runs under one operator alone", alone).await?;
    Ok(())
}
