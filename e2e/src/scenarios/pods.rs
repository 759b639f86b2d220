//! Tests Pods that do not start: the condition names the reason, and the value in the spec that caused it.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, POD, SECRET},
    manifests::{CRASH, agent},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, phases},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_crashing_image_is_never_called_running,
    an_image_that_does_not_exist_is_said_and_a_better_one_runs,
    a_secret_that_does_not_exist_is_said_and_picked_up,
    a_rotated_secret_rolls_its_users,
    a_pod_that_no_node_takes_is_said,
    a_volume_that_cannot_be_mounted_is_said,
    an_edit_to_a_bad_image_keeps_the_old_pods,
);

async fn a_crashing_image_is_never_called_running(ns: Namespace) -> Result<()> {
    let recorder = ns.record(AGENT, "crasher").await?;
    ns.apply(&agent("crasher", json!({"image": CRASH}))).await?;
    until_pod(&ns, "backs off from restarting", |reason| reason == "CrashLoopBackOff").await?;
    let reported = await_reason(&ns, "crasher", &["CrashLoop", "1"]).await?;
    let seen = recorder.up_to(&reported).await?;
    let phases = phases(&seen);
    ensure!(phases == ["Pending", "Resolving", "Rendering", "Deploying"], "phases: {phases:?}");
    ensure!(!seen.iter().any(|it| it.condition("Ready").is_true()), "it was called ready");
    Ok(())
}

async fn an_image_that_does_not_exist_is_said_and_a_better_one_runs(ns: Namespace) -> Result<()> {
    let recorder = ns.record(AGENT, "typo").await?;
    ns.apply(&agent("typo", json!({"image": "corial:latest"}))).await?;
    until_pod(&ns, "has no image", |reason| reason.starts_with("ErrImage")).await?;
    let reported = await_reason(&ns, "typo", &["ImagePull", "corial:latest"]).await?;
    ensure!(!phases(&recorder.up_to(&reported).await?).contains(&"Running"), "it was called Running");

    ns.edit(AGENT, "typo", json!({"spec": {"image": "corail:latest"}})).await?;
    ns.await_agent_running("typo").await?;
    Ok(())
}

async fn a_secret_that_does_not_exist_is_said_and_picked_up(ns: Namespace) -> Result<()> {
    ns.apply(&with_key("locked")).await?;
    await_reason(&ns, "locked", &["api-keys"]).await?;
    ns.apply(&keys("hunter2")).await?;
    let running = ns.await_agent_running("locked").await?;
    ensure!(!running.data.to_string().contains("hunter2"), "the Secret's value is in the object");
    Ok(())
}

async fn a_rotated_secret_rolls_its_users(ns: Namespace) -> Result<()> {
    ns.apply(&keys("before")).await?;
    let before = ns.start(&with_key("fresh")).await?;
    ns.apply(&keys("after")).await?;
    let rolled = |it: &Object| it.is_running() && it.text("/status/contentHash") != before.text("/status/contentHash");
    ns.until(AGENT, "fresh", START_TIMEOUT, "runs with the new Secret", rolled).await?;
    crate::environment::has(&ns, "fresh", "KEY", Some("after")).await
}

/// Returns an agent with an environment variable from a Secret.
fn with_key(name: &str) -> Value {
    let key = json!({"secretKeyRef": {"name": "api-keys", "key": "key"}});
    agent(name, json!({"env": [{"name": "KEY", "valueFrom": key}]}))
}

/// Returns that Secret.
fn keys(value: &str) -> Value {
    json!({
        "apiVersion": SECRET.api_version(), "kind": SECRET.kind, "metadata": {"name": "api-keys"},
        "stringData": {"key": value},
    })
}

async fn a_pod_that_no_node_takes_is_said(ns: Namespace) -> Result<()> {
    let nowhere = json!({"spec": {"nodeSelector": {"disk": "none-has-this"}}});
    ns.apply(&agent("homeless", json!({"podTemplate": nowhere}))).await?;
    await_reason(&ns, "homeless", &["Unschedulable"]).await?;
    ns.edit(AGENT, "homeless", json!({"spec": {"podTemplate": null}})).await?;
    ns.await_agent_running("homeless").await?;
    Ok(())
}

async fn a_volume_that_cannot_be_mounted_is_said(ns: Namespace) -> Result<()> {
    let volume = json!({"name": "prices", "configMap": {"name": "nowhere"}});
    let container = json!({"name": "agent", "volumeMounts": [{"name": "prices", "mountPath": "/prices"}]});
    let template = json!({"spec": {"volumes": [volume], "containers": [container]}});
    ns.apply(&agent("bookkeeper", json!({"podTemplate": template}))).await?;
    poll(START_TIMEOUT, "recif why names the ConfigMap", || async {
        let (_, text) = ns.env.recif(&["why", "agent/bookkeeper", "-n", &ns.name]).await?;
        ensure!(text.contains("FailedMount") && text.contains("\"nowhere\" not found"), "{text}");
        Ok(Some(()))
    })
    .await
}

async fn an_edit_to_a_bad_image_keeps_the_old_pods(ns: Namespace) -> Result<()> {
    ns.start(&agent("careful", json!({}))).await?;
    let pods = ns.pod_uids("careful").await?;
    ns.edit(AGENT, "careful", json!({"spec": {"image": "corial:latest"}})).await?;
    until_pod(&ns, "has no image", |reason| reason.starts_with("ErrImage")).await?;
    let reported = await_reason(&ns, "careful", &["ImagePull", "corial:latest"]).await?;
    ensure!(reported.condition("Available").is_true(), "the old Pods no longer count: {}", reported.describe());
    ensure!(ns.chat("careful", "hi").await? == "echo: hi", "the old Pods do not answer");
    let now = ns.pod_uids("careful").await?;
    ensure!(pods.iter().all(|uid| now.contains(uid)), "the old Pod was removed");
    Ok(())
}

/// Waits until the agent's container waits for a reason that `is` accepts, as reported by the kubelet.
async fn until_pod(ns: &Namespace, what: &str, is: impl Fn(&str) -> bool) -> Result<()> {
    let waits = |pod: &Object| is(pod.text("/status/containerStatuses/0/state/waiting/reason"));
    ns.until_all(POD, START_TIMEOUT, &format!("a Pod that {what}"), |pods| pods.values().any(waits)).await.map(drop)
}

/// Waits up to ten seconds until Ready is False with these words, and the agent is not Running.
async fn await_reason(ns: &Namespace, agent: &str, words: &[&str]) -> Result<Object> {
    let message = |it: &Object| {
        let ready = it.condition("Ready");
        it.is_current() && it.phase() != "Running" && ready.is_false() && words.iter().all(|word| ready.contains(word))
    };
    ns.until(AGENT, agent, REPORT_TIMEOUT, &format!("is not ready and says {words:?}"), message).await
}
