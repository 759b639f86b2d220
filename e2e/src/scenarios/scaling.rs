//! Tests `scaling`: the number of Pods follows the load, changes its field manager without a gap, and may be zero.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::traffic::{await_response, send_request};
use crate::{
    client::{BackgroundLoad, ClientTarget, LoadProfile},
    kinds::{AGENT, DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, POD},
    manifests::{WORKLOAD, object, workload},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, phases},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Serial:
    four_times_the_capacity_is_answered_by_more_pods_within_two_seconds_and_they_go_again,
    scaling_switched_on_and_off_at_five_pods_never_leaves_fewer,
    the_last_pod_goes_without_calls_and_a_request_brings_it_back,
    a_pod_answers_before_the_kubelet_has_found_it_ready,
    without_scaling_autoscalers_and_kubectl_set_the_number,
);
pub(super) const SHARED: &[Scenario] = scenarios!(Parallel:
    without_scaling_a_horizontal_pod_autoscaler_sets_the_number,
    what_only_the_kubelet_can_judge_is_waited_for_at_a_cold_start,
);

/// Longest time of an overload until more Pods are requested.
const REACTION: Duration = Duration::from_secs(2);

fn scaling(more: Value) -> Value {
    let mut scaling = json!({"minReplicas": 1, "maxReplicas": 4, "concurrency": 2, "stableWindow": "5s"});
    if let (Some(scaling), Value::Object(more)) = (scaling.as_object_mut(), more) {
        scaling.extend(more);
    }
    json!({"scaling": scaling})
}

/// Reports whether this field manager is the only owner of the replicas of the Deployment.
fn is_by(deployment: &Object, manager: &str) -> bool {
    let sets = |fields: &Value| !fields["f:spec"]["f:replicas"].is_null();
    let entries = deployment.metadata.managed_fields.iter().flatten();
    let setting = entries.filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| sets(&fields.0)));
    setting.map(|entry| entry.manager.as_deref()).eq([Some(manager)])
}

async fn four_times_the_capacity_is_answered_by_more_pods_within_two_seconds_and_they_go_again(
    ns: Namespace,
) -> Result<()> {
    ns.start(&workload("follower", scaling(json!({})))).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "follower").await?;
    await_response(&ns, &gateway).await?;
    let recorder = ns.record(AGENT, "follower").await?;
    // Until the new Pods are ready there is more load than capacity: the newest request is served first (adaptive LIFO),
    // and the others get a refusal with `Retry-After`.
    let plan = LoadProfile { requests: 8, streams: 0, stream: Duration::ZERO, retry_on: Some("no-capacity") };
    let load = BackgroundLoad::start(&ns.env, &[gateway], plan).await?;
    let more = |it: &Object| it.number("/spec/replicas") > 1;
    ns.until(DEPLOYMENT, "follower", REACTION, "asks for more Pods", more).await?;
    let four = |it: &Object| it.is_running() && it.number("/status/replicas") == 4;
    let full = ns.until(AGENT, "follower", START_TIMEOUT, "runs with four ready Pods", four).await?;
    ensure!(full.number("/status/desiredReplicas") == 4, "{}", full.describe());
    ensure!(full.condition("ScalingActive").is_true(), "{}", full.describe());
    load.stop(50, 0).await?;
    let one = |it: &Object| it.is_running() && it.number("/status/currentReplicas") == 1;
    let small = ns.until(AGENT, "follower", START_TIMEOUT, "runs with one Pod", one).await?;
    let seen = recorder.up_to(&small).await?;
    ensure!(phases(&seen) == ["Running"], "phases while scaled: {:?}", phases(&seen));
    Ok(())
}

async fn scaling_switched_on_and_off_at_five_pods_never_leaves_fewer(ns: Namespace) -> Result<()> {
    ns.start(&workload("switched", json!({"replicas": 5, "proxy": {"concurrency": 8}}))).await?;
    let recorder = ns.record(DEPLOYMENT, "switched").await?;
    // The scaling keeps the number of Pods, because the test is about the owner of the field, and the concurrency limit, so
    // nothing is rolled out.
    let on = json!({"minReplicas": 5, "maxReplicas": 10, "concurrency": 8});
    for (scaling, owner) in [(on, "recif-scaler"), (Value::Null, "recif-replicas")] {
        ns.edit(AGENT, "switched", json!({"spec": {"scaling": scaling}})).await?;
        let held = |it: &Object| is_by(it, owner);
        let held =
            ns.until(DEPLOYMENT, "switched", REPORT_TIMEOUT, &format!("has its replicas from {owner}"), held).await?;
        ns.await_running(AGENT, "switched").await?;
        let seen = recorder.up_to(&held).await?;
        for it in &seen {
            ensure!(it.number("/spec/replicas") >= 5, "{} Pods asked for", it.number("/spec/replicas"));
            ensure!(it.number("/status/readyReplicas") >= 5, "{} Pods ready", it.number("/status/readyReplicas"));
        }
    }
    let agent = ns.get(AGENT, "switched").await?;
    ensure!(agent.condition("ScalingActive").status.is_empty(), "{}", agent.describe());
    Ok(())
}

async fn the_last_pod_goes_without_calls_and_a_request_brings_it_back(ns: Namespace) -> Result<()> {
    let fields = scaling(json!({"minReplicas": 0, "scaleToZeroAfter": "5s"}));
    ns.start(&workload("dozing", fields)).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "dozing").await?;
    await_response(&ns, &gateway).await?;
    let recorder = ns.record(AGENT, "dozing").await?;
    // The request takes twice the idle time after which the Pod would be removed.
    let answer = send_request(&ns, &gateway, "GET", "/sleep?ms=10000").await?;
    ensure!(answer.status == 200, "{answer:?}");
    let ended = ns.get(DEPLOYMENT, "dozing").await?;
    ensure!(ended.number("/spec/replicas") == 1, "its Pod was taken while a request ran");
    let asleep = |it: &Object| {
        let says = |type_| it.condition(type_).is_true() && it.condition(type_).reason == "ScaledToZero";
        it.phase() == "Running" && says("Ready") && says("Available") && it.number("/status/currentReplicas") == 0
    };
    let before = ns.until(AGENT, "dozing", START_TIMEOUT, "sleeps", asleep).await?;
    let answer = send_request(&ns, &gateway, "GET", "/sleep?ms=0").await?;
    ensure!(answer.status == 200, "{answer:?}");
    let awake = ns.await_running(AGENT, "dozing").await?;
    ensure!(awake.id() == before.id() && awake.generation() == before.generation(), "another client wrote to its spec");
    let seen = recorder.up_to(&awake).await?;
    ensure!(phases(&seen) == ["Running"], "phases on the way: {:?}", phases(&seen));
    Ok(())
}

async fn a_pod_answers_before_the_kubelet_has_found_it_ready(ns: Namespace) -> Result<()> {
    let name = "early";
    ns.start(&workload(name, scaling(json!({"minReplicas": 0, "scaleToZeroAfter": "5s"})))).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, name).await?;
    await_response(&ns, &gateway).await?;
    let asleep = |it: &Object| it.is_running() && it.number("/status/currentReplicas") == 0;
    // The first probe of the kubelet is three seconds after the start; on a busy machine the Pod may need as long itself.
    for _ in 0..3 {
        ns.until(AGENT, name, START_TIMEOUT, "sleeps", asleep).await?;
        ns.await_no_pod(name).await?;
        let answer = send_request(&ns, &gateway, "GET", "/sleep?ms=0").await?;
        ensure!(answer.status == 200, "{answer:?}");
        if ns.list(POD).await?.iter().all(|pod| !pod.condition("Ready").is_true()) {
            return Ok(());
        }
    }
    bail!("each time the answer came only when the Pod was Ready")
}

async fn what_only_the_kubelet_can_judge_is_waited_for_at_a_cold_start(ns: Namespace) -> Result<()> {
    const GATE: &str = "e2e.recif.dev/gate";
    let closed = |name| workload(name, json!({"podTemplate": {"spec": {"readinessGates": [{"conditionType": GATE}]}}}));
    // The second container listens on another port than the one of its probe.
    let second = json!({
        "name": "second", "image": WORKLOAD, "env": [{"name": "CORAIL_PORT", "value": "8001"}],
        "readinessProbe": {"tcpSocket": {"port": 9}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    let slow = |name| workload(name, json!({"podTemplate": {"spec": {"containers": [second]}}}));
    for agent in [closed("gated"), slow("paired")] {
        ns.apply(&agent).await?;
    }
    for name in ["gated", "paired"] {
        let gateway = ClientTarget::gateway(&ns, AGENT, name).await?;
        let of_agent = |it: &&Object| it.labels().get("recif.dev/agent").is_some_and(|agent| agent == name);
        let pod = poll(START_TIMEOUT, "the agent's container ready", || async {
            let pods = ns.list(POD).await?;
            let runs = |it: &&Object| {
                let all = it.at("/status/containerStatuses").as_array().cloned().unwrap_or_default();
                all.iter().any(|container| container["name"] == "agent" && container["ready"] == true)
            };
            Ok(pods.iter().filter(of_agent).find(runs).map(|pod| pod.name_any()))
        })
        .await?;
        let (waiting, target) = (ns.clone(), gateway.clone());
        let asked = tokio::spawn(async move { send_request(&waiting, &target, "GET", "/sleep?ms=0").await });
        sleep(Duration::from_secs(2)).await;
        ensure!(!asked.is_finished(), "{name} was given a request: {:?}", asked.await?);
        if name == "gated" {
            let open = json!({"status": {"conditions": [{"type": GATE, "status": "True"}]}});
            let patch = Patch::Strategic(open);
            ns.api(POD).patch_status(&pod, &PatchParams::default(), &patch).await.context("open the gate")?;
            let answer = asked.await??;
            ensure!(answer.status == 200, "{answer:?}");
        } else {
            asked.abort();
        }
    }
    Ok(())
}

async fn without_scaling_autoscalers_and_kubectl_set_the_number(ns: Namespace) -> Result<()> {
    ns.start(&workload("plain", json!({}))).await?;
    ns.scale(AGENT, "plain", 2, "kube-controller-manager").await?;
    let two = |it: &Object| it.is_running() && it.number("/status/replicas") == 2;
    let agent = ns.until(AGENT, "plain", START_TIMEOUT, "runs with two ready Pods", two).await?;
    ensure!(agent.number("/status/desiredReplicas") == 2, "{}", agent.describe());
    let deployment = ns.get(DEPLOYMENT, "plain").await?;
    ensure!(is_by(&deployment, "recif-replicas"), "{:?}", deployment.managed_fields());
    // A change of the Deployment itself is left unchanged, and reported.
    ns.scale(DEPLOYMENT, "plain", 1, "kubectl").await?;
    let one = |it: &Object| it.is_running() && it.number("/status/replicas") == 1;
    let agent =
        ns.until(AGENT, "plain", START_TIMEOUT, "runs with one Pod", one).await.context("scaled by its Deployment")?;
    ensure!(agent.condition("Available").contains("kubectl"), "{}", agent.describe());
    Ok(())
}

async fn without_scaling_a_horizontal_pod_autoscaler_sets_the_number(ns: Namespace) -> Result<()> {
    let before = ns.start(&workload("held", json!({}))).await?;
    ensure!(before.number("/status/replicas") == 1, "{}", before.describe());
    // There are no metrics here; the bounds of the autoscaler need none.
    let agent = json!({"apiVersion": AGENT.api_version(), "kind": AGENT.kind, "name": "held"});
    let spec = json!({"scaleTargetRef": agent, "minReplicas": 2, "maxReplicas": 3});
    ns.apply(&object(HORIZONTAL_POD_AUTOSCALER, "held", spec)).await?;
    let two = |it: &Object| it.is_running() && it.number("/status/replicas") == 2;
    ns.until(AGENT, "held", START_TIMEOUT, "runs with two ready Pods", two).await.map(drop)
}
