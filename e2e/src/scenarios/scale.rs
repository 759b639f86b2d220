//! Tests the number of Pods: zero, one, several.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use serde_json::json;

use crate::{
    kinds::{AGENT, DEPLOYMENT, POD},
    manifests::agent,
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _, phases},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    no_replicas_is_terminated_and_one_replica_runs_again,
    an_agent_made_with_no_replicas_waits_for_no_reference,
    kubectl_scale_works_on_the_agent_without_leaving_running,
);

fn is_terminated(it: &Object) -> bool {
    let (ready, available) = (it.condition("Ready"), it.condition("Available"));
    it.phase() == "Terminated"
        && it.is_current()
        && ready.is_true()
        && ready.reason == "Stopped"
        && available.is_false()
        && available.reason == "Stopped"
}

async fn no_replicas_is_terminated_and_one_replica_runs_again(ns: Namespace) -> Result<()> {
    ns.start(&agent("sleeper", json!({}))).await?;
    ns.edit(AGENT, "sleeper", json!({"spec": {"replicas": 0}})).await?;
    ns.until(AGENT, "sleeper", START_TIMEOUT, "is Terminated, Ready and Available say Stopped", is_terminated).await?;
    ensure!(ns.list(POD).await?.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()), "it still has a Pod");
    ensure!(ns.get(DEPLOYMENT, "sleeper").await?.number("/spec/replicas") == 0, "the Deployment asks for Pods");

    ns.edit(AGENT, "sleeper", json!({"spec": {"replicas": 1}})).await?;
    ns.await_agent_running("sleeper").await?;
    ensure!(ns.chat("sleeper", "hi").await? == "echo: hi", "it does not echo");
    Ok(())
}

async fn an_agent_made_with_no_replicas_waits_for_no_reference(ns: Namespace) -> Result<()> {
    ns.apply(&agent("draft", json!({"replicas": 0, "tools": ["not-yet-there"]}))).await?;
    ns.until(AGENT, "draft", START_TIMEOUT, "is Terminated, Ready and Available say Stopped", is_terminated).await?;
    ns.edit(AGENT, "draft", json!({"spec": {"replicas": 1}})).await?;
    ns.await_agent_not_ready("draft", START_TIMEOUT, "Resolving", &["not-yet-there"]).await?;
    Ok(())
}

async fn kubectl_scale_works_on_the_agent_without_leaving_running(ns: Namespace) -> Result<()> {
    let before = ns.start(&agent("growing", json!({}))).await?;
    let pods = ns.pod_uids("growing").await?;
    let recorder = ns.record(AGENT, "growing").await?;
    ns.scale(AGENT, "growing", 2, "kubectl").await?;
    let two = |it: &Object| it.is_running() && it.number("/status/replicas") == 2;
    let running = ns.until(AGENT, "growing", START_TIMEOUT, "runs with two ready Pods", two).await?;
    let seen = recorder.up_to(&running).await?;
    let phases = phases(&seen);
    ensure!(phases == ["Running"], "phases while scaled: {phases:?}");
    ensure!(running.text("/status/contentHash") == before.text("/status/contentHash"), "the content hash changed");

    let now = ns.pod_uids("growing").await?;
    ensure!(now.len() == 2 && pods.iter().all(|uid| now.contains(uid)), "the first Pod was replaced");

    let api: Api<crds::Agent> = Api::namespaced(ns.env.client.clone(), &ns.name);
    let status = api.get_scale("growing").await?.status.context("the scale subresource has no status")?;
    ensure!(status.replicas == 2, "it reports {} replicas", status.replicas);
    ensure!(status.selector.is_some_and(|selector| selector.contains("growing")), "it reports no selector");
    Ok(())
}
