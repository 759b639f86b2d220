//! Deletes objects while no operator runs (P38): agents with each propagation policy, children by hand, and finally the
//! CustomResourceDefinition of Agents.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::fault::FaultProxy;
use kube::{
    Api, Error, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams, PropagationPolicy},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    fault_env::FaultEnv,
    script::{ScriptNamespace, described, resource},
};

/// Name of the scenario.
pub(crate) const NAME: &str = "P38-away-at-deletion";
/// CustomResourceDefinition of Agents.
const AGENTS: &str = "agents.agents.recif.dev";
/// Time limit for the restarted operator to catch up.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for the objects of earlier scenarios to be gone.
const LEFTOVERS: Duration = Duration::from_secs(120);

/// Plays the scenario.
pub(crate) async fn play(env: &FaultEnv) -> Result<String> {
    let namespaces = env.create_namespaces(NAME, env.args.seeds.min(4)).await?;
    let played = play_in(env, &namespaces).await;
    for namespace in &namespaces {
        namespace.remove().await?;
    }
    played
}

async fn play_in(env: &FaultEnv, namespaces: &[ScriptNamespace]) -> Result<String> {
    let (proxy, log) = (env.proxy().await?, env.log(NAME));
    let start = async |proxy: &FaultProxy| env.operator(proxy, &log, "away", None).await;
    let operator = start(&proxy).await?;
    for namespace in namespaces {
        namespace.play().await?;
    }
    let everywhere: Api<DynamicObject> = Api::all_with(env.client.clone(), &resource("Agent"));
    let begun = Instant::now();
    while everywhere.list(&ListParams::default()).await.context("list all agents")?.items.len() > 6 * namespaces.len() {
        ensure!(begun.elapsed() < LEFTOVERS, "agents of earlier scenarios are left after {LEFTOVERS:?}");
        sleep(Duration::from_millis(500)).await;
    }
    operator.kill().await?;
    for namespace in namespaces {
        for (kind, name) in [("Deployment", "plain"), ("ConfigMap", "plain-config"), ("Service", "wide")] {
            namespace
                .api(kind)
                .delete(name, &DeleteParams::default())
                .await
                .with_context(|| format!("delete {name}"))?;
        }
        for (name, policy) in [
            ("plain", PropagationPolicy::Background),
            ("wide", PropagationPolicy::Foreground),
            ("stored", PropagationPolicy::Orphan),
        ] {
            let how = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
            namespace.api("Agent").delete(name, &how).await.with_context(|| format!("delete {name}"))?;
        }
    }
    for namespace in namespaces {
        let agents = namespace.agents().await?;
        let going = agents.iter().filter(|agent| agent.metadata.deletion_timestamp.is_some()).count();
        ensure!((agents.len(), going) == (6, 3), "{going} of {} agents wait for their finalizer", agents.len());
    }
    let operator = start(&proxy).await?;
    let begun = Instant::now();
    for namespace in namespaces {
        until(namespace, "those that were deleted are gone", |agents| {
            let names: Vec<_> = agents.iter().map(|agent| agent.name_any()).collect();
            names == ["gone", "tooled", "waiting"]
        })
        .await?;
    }
    let gone_after = begun.elapsed();
    for namespace in namespaces {
        namespace.api("Deployment").get("stored").await.context("the Deployment that was to be orphaned")?;
    }
    operator.kill().await?;
    let definitions: Api<DynamicObject> = Api::all_with(env.client.clone(), &resource("CustomResourceDefinition"));
    let definition = definitions.get(AGENTS).await.context("read the Agents' definition")?;
    definitions.delete(AGENTS, &DeleteParams::default()).await.context("delete the Agents' definition")?;
    definitions.get(AGENTS).await.context("the Agents' definition, which finalizers hold")?;
    let operator = start(&proxy).await?;
    let begun = Instant::now();
    while !matches!(definitions.get(AGENTS).await, Err(Error::Api(status)) if status.code == 404) {
        ensure!(begun.elapsed() < TIMEOUT, "finalizers hold the definition after {TIMEOUT:?}");
        sleep(Duration::from_millis(200)).await;
    }
    let defined_after = begun.elapsed();
    let metadata =
        json!({"name": AGENTS, "annotations": definition.metadata.annotations, "labels": definition.metadata.labels});
    let again: Value = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
        "spec": definition.data["spec"],
    });
    definitions.create(&PostParams::default(), &serde_json::from_value(again)?).await.context("define Agents again")?;
    // The API server serves the kind only a moment later.
    let begun = Instant::now();
    while let Err(error) = namespaces[0].create("Agent", "after", json!({})).await {
        ensure!(begun.elapsed() < TIMEOUT, "no Agent can be made again: {error:#}");
        sleep(Duration::from_millis(200)).await;
    }
    until(&namespaces[0], "an agent of the new definition runs", |agents| {
        agents.iter().any(|agent| agent.name_any() == "after" && agent.data["status"]["phase"] == "Running")
    })
    .await?;
    operator.stop().await?;
    let [gone, defined] = [gone_after, defined_after].map(|after| after.as_secs_f32());
    Ok(format!("agents gone after {gone:.1} s, their definition after {defined:.1} s"))
}

async fn until(namespace: &ScriptNamespace, what: &str, is_so: impl Fn(&[DynamicObject]) -> bool) -> Result<()> {
    let begun = Instant::now();
    loop {
        let agents = namespace.agents().await?;
        if is_so(&agents) {
            return Ok(());
        }
        ensure!(begun.elapsed() < TIMEOUT, "{}: not after {TIMEOUT:?}: {what}; {}", namespace.name, described(&agents));
        sleep(Duration::from_millis(200)).await;
    }
}
