//! Tests the sidecar of a workload's Pods: the fields that add, change or do not change it.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, DEPLOYMENT, POD, SERVICE},
    manifests::{agent, flow, model, plugin_config, prompt},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, phases},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_agent_answers_with_and_without_it,
    a_flow_answers_through_it,
    what_only_the_scaler_reads_rolls_no_pod,
    its_missing_image_is_said,
);

async fn an_agent_answers_with_and_without_it(ns: Namespace) -> Result<()> {
    let with = ns.start(&agent("switch", json!({}))).await?;
    ensure!(
        with.text("/status/images/proxy").contains("/proxy:"),
        "its image is not pinned: {}",
        with.at("/status/images")
    );
    ensure!(ns.chat("switch", "hi").await? == "echo: hi", "it does not echo behind its sidecar");
    let sidecars = |pod: &Object| pod.at("/spec/initContainers").as_array().map_or(0, Vec::len);
    ensure!(ns.list(POD).await?.iter().all(|pod| sidecars(pod) == 1), "a Pod has no sidecar");

    for (enabled, containers) in [(false, 0), (true, 1)] {
        ns.edit(AGENT, "switch", json!({"spec": {"proxy": {"enabled": enabled}}})).await?;
        let pinned = |it: &Object| it.is_running() && it.at("/status/images/proxy").is_string() == enabled;
        ns.until(AGENT, "switch", START_TIMEOUT, "runs with the other sort of Pod", pinned).await?;
        ensure!(ns.chat("switch", "hi").await? == "echo: hi", "it does not echo, the sidecar enabled: {enabled}");
        let pods = ns.list(POD).await?;
        let mut new = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        ensure!(new.all(|pod| sidecars(pod) == containers), "an old Pod is left");
    }
    Ok(())
}

async fn a_flow_answers_through_it(ns: Namespace) -> Result<()> {
    ns.provide(&plugin_config("stub", json!({}))).await?;
    ns.provide(&model("echo", "stub")).await?;
    ns.provide(&prompt("greeting", "Greet {{name}}.")).await?;
    ns.start(&flow("greeter", &["greeting"], json!({}))).await?;
    let pods = ns.list(POD).await?;
    let port = |pod: &Object| pod.number("/spec/containers/0/ports/1/containerPort");
    ensure!(pods.iter().all(|pod| port(pod) == 8888), "its Pods have no sidecar");
    let service = ns.get(SERVICE, "greeter").await?;
    ensure!(service.text("/spec/ports/0/targetPort") == "http", "its Service leads elsewhere");
    ns.await_response("greeter", "/", json!({"name": "Ada"}), "echo: Greet Ada.").await
}

async fn what_only_the_scaler_reads_rolls_no_pod(ns: Namespace) -> Result<()> {
    ns.start(&agent("busy", json!({"scaling": {"maxReplicas": 3}}))).await?;
    let pods = ns.pod_uids("busy").await?;
    let recorder = ns.record(AGENT, "busy").await?;
    let scaling = json!({"maxReplicas": 2, "stableWindow": "5m", "scaleToZeroAfter": "1h"});
    ns.edit(AGENT, "busy", json!({"spec": {"scaling": scaling}})).await?;
    let reported = ns.await_agent_running("busy").await?;
    let seen = recorder.up_to(&reported).await?;
    ensure!(phases(&seen) == ["Running"], "phases: {:?}", phases(&seen));
    ensure!(ns.pod_uids("busy").await? == pods, "its Pods were replaced");

    // The concurrency limit is a variable in the Pods.
    ns.edit(AGENT, "busy", json!({"spec": {"scaling": {"concurrency": 2}}})).await?;
    ns.until(DEPLOYMENT, "busy", START_TIMEOUT, "has the new cap", |it| variable(it, "RECIF_CONCURRENCY") == "2")
        .await?;
    ns.await_agent_running("busy").await?;
    let now = ns.pod_uids("busy").await?;
    ensure!(!now.iter().any(|uid| pods.contains(uid)), "its Pods have the old cap");
    Ok(())
}

/// Returns the value of an environment variable of the sidecar.
fn variable<'a>(deployment: &'a Object, name: &str) -> &'a str {
    let env = deployment.at("/spec/template/spec/initContainers/0/env").as_array().into_iter().flatten();
    env.filter(|variable| variable["name"] == name).find_map(|variable| variable["value"].as_str()).unwrap_or_default()
}

async fn its_missing_image_is_said(ns: Namespace) -> Result<()> {
    let overlay =
        json!({"spec": {"initContainers": [{"name": "proxy", "image": "proxi:dev", "imagePullPolicy": "Never"}]}});
    ns.apply(&agent("typo", json!({"podTemplate": overlay}))).await?;
    let waits = |pod: &Object| pod.text("/status/initContainerStatuses/0/state/waiting/reason").starts_with("ErrImage");
    ns.until_all(POD, START_TIMEOUT, "a Pod whose sidecar has no image", |pods| pods.values().any(waits)).await?;
    ns.await_agent_not_ready("typo", REPORT_TIMEOUT, "Deploying", &["ImagePull", "proxi:dev"]).await?;
    ns.edit(AGENT, "typo", json!({"spec": {"podTemplate": Value::Null}})).await?;
    ns.await_agent_running("typo").await?;
    ensure!(ns.chat("typo", "hi").await? == "echo: hi", "it does not echo");
    Ok(())
}
