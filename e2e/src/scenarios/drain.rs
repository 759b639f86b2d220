//! Tests that no request fails and no stream shorter than `drainTimeout` is cut while Pods are started and stopped, and that evictions
//! leave a Pod that serves.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::traffic::{await_response, targets_of};
use crate::{
    cleanup::await_ended_namespaces,
    client::{BackgroundLoad, ClientTarget, LoadProfile},
    gateway,
    kinds::{AGENT, DISRUPTION_BUDGET, POD},
    manifests::{agent, object, workload},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    operator,
    scenario::{Scenario, number, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_rollout_and_a_step_down_lose_no_request,
    a_pod_of_several_that_is_deleted_loses_no_request,
    a_single_pod_that_is_deleted_loses_no_request,
    an_eviction_takes_one_of_several_pods_at_a_time,
    two_budgets_never_block_an_eviction,
);
pub(super) const ALONE: &[Scenario] = scenarios!(Exclusive:
    a_rollout_of_the_gateway_loses_no_request,
    requests_do_not_notice_that_the_control_plane_dies,
    requests_do_not_notice_that_the_control_plane_is_away,
);

/// Drain timeout of every workload here; it is longer than the streams.
const DRAIN: &str = "10s";
pub(super) const LOAD_PROFILE: LoadProfile =
    LoadProfile { requests: 2, streams: 2, stream: Duration::from_secs(6), retry_on: None };
/// Longest wait until Pods are gone: lame duck, drain, and the delay of a busy machine.
const GONE: Duration = Duration::from_secs(60);

/// Starts an agent that drains, and returns both ways to it, which lead to its Pods.
pub(super) async fn start(ns: &Namespace, name: &str, replicas: usize) -> Result<[ClientTarget; 2]> {
    // The Pod becomes ready as early as possible.
    let probe = json!({"initialDelaySeconds": 0, "periodSeconds": 1});
    let template = json!({"spec": {"containers": [{"name": "agent", "readinessProbe": probe}]}});
    ns.start(&workload(name, json!({"replicas": replicas, "drainTimeout": DRAIN, "podTemplate": template}))).await?;
    let targets = targets_of(ns, name).await?;
    for target in &targets {
        await_response(ns, target).await?;
    }
    Ok(targets)
}

/// Waits until exactly this many Pods exist, all of them ready.
pub(super) async fn settled(ns: &Namespace, count: usize) -> Result<ObjectsByName> {
    let settled = |pods: &ObjectsByName| {
        pods.len() == count && pods.values().all(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod))
    };
    ns.until_all(POD, GONE, &format!("only {count} ready Pods"), settled).await
}

pub(super) fn is_ready(pod: &Object) -> bool {
    pod.condition("Ready").is_true()
}

async fn a_rollout_and_a_step_down_lose_no_request(ns: Namespace) -> Result<()> {
    let targets = start(&ns, "fleet", 2).await?;
    let old = ns.pod_uids("fleet").await?;
    let load = BackgroundLoad::start(&ns.env, &targets, LOAD_PROFILE).await?;
    let before = ns.get(AGENT, "fleet").await?;
    ns.edit(AGENT, "fleet", json!({"spec": {"systemPrompt": "be brief"}})).await?;
    ns.await_reconfigured(AGENT, &before).await?;
    let pods = settled(&ns, 2).await?;
    ensure!(pods.values().all(|pod| !old.contains(&pod.id())), "an old Pod is still there");
    ns.scale(AGENT, "fleet", 1, "kubectl").await?;
    settled(&ns, 1).await?;
    load.stop(50, 8).await
}

async fn a_single_pod_that_is_deleted_loses_no_request(ns: Namespace) -> Result<()> {
    let [service, gateway] = start(&ns, "single", 1).await?;
    // The Pod serves as a lame duck for 5 s. On a busy machine the next Pod takes longer. Then clients of the Service get a
    // refusal with `Retry-After`; requests through the gateway wait there.
    let by_service =
        BackgroundLoad::start(&ns.env, &[service], LoadProfile { retry_on: Some("draining"), ..LOAD_PROFILE }).await?;
    let by_gateway = BackgroundLoad::start(&ns.env, &[gateway], LOAD_PROFILE).await?;
    let pod = ns.list(POD).await?.pop().context("no Pod")?;
    ns.delete(POD, &pod.name_any()).await?;
    ns.until_gone(POD, &pod.name_any(), GONE).await?;
    settled(&ns, 1).await?;
    let ended = [by_service.stop(25, 2).await, by_gateway.stop(25, 2).await];
    ended.into_iter().collect()
}

async fn a_pod_of_several_that_is_deleted_loses_no_request(ns: Namespace) -> Result<()> {
    let targets = start(&ns, "several", 2).await?;
    let load = BackgroundLoad::start(&ns.env, &targets, LOAD_PROFILE).await?;
    let pod = ns.list(POD).await?.pop().context("no Pod")?;
    ns.delete(POD, &pod.name_any()).await?;
    ns.until_gone(POD, &pod.name_any(), GONE).await?;
    settled(&ns, 2).await?;
    load.stop(50, 4).await
}

/// Waits until an agent with two Pods has a budget that allows to evict one of them.
async fn await_budget(ns: &Namespace, agent: &str) -> Result<()> {
    let allows_one = |it: &Object| {
        it.number("/status/expectedPods") == 2
            && it.number("/status/disruptionsAllowed") == 1
            && it.metadata.deletion_timestamp.is_none()
    };
    let name = DISRUPTION_BUDGET.child_of(agent);
    ns.until(DISRUPTION_BUDGET, &name, START_TIMEOUT, "allows to evict one of two Pods", allows_one).await.map(drop)
}

/// Evicts a Pod as `kubectl drain` does; a refusal is not tried again. Returns the status code.
async fn evict(ns: &Namespace, pod: &Object) -> Result<u16> {
    let name = pod.name_any();
    let path = format!("/api/v1/namespaces/{}/pods/{name}/eviction", ns.name);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let request = http::Request::post(path).header("content-type", "application/json");
    let sent = ns.env.client_without_retry.request::<Value>(request.body(eviction.to_string().into_bytes())?).await;
    match sent {
        Ok(_) => Ok(201),
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => Err(error).context("evict a Pod"),
    }
}

async fn an_eviction_takes_one_of_several_pods_at_a_time(ns: Namespace) -> Result<()> {
    ns.start(&workload("pair", json!({"replicas": 2}))).await?;
    let budget = DISRUPTION_BUDGET.child_of("pair");
    await_budget(&ns, "pair").await?;
    let pods = ns.list(POD).await?;
    let [one, other] = pods.as_slice() else { bail!("{} Pods", pods.len()) };
    let (first, second) = tokio::try_join!(evict(&ns, one), evict(&ns, other))?;
    let codes = [first.min(second), first.max(second)];
    ensure!(codes == [201, 429], "both Pods evicted at once are answered {codes:?}");
    let pods = settled(&ns, 2).await?;
    let kept = pods.values().filter(|pod| [one.id(), other.id()].contains(&pod.id())).count();
    ensure!(kept == 1, "{kept} of the two Pods are still there");

    ns.scale(AGENT, "pair", 1, "kubectl").await?;
    ns.until_gone(DISRUPTION_BUDGET, &budget, REPORT_TIMEOUT).await?;
    let pods = settled(&ns, 1).await?;
    for pod in pods.values() {
        let code = evict(&ns, pod).await?;
        ensure!(code == 201, "the only Pod, evicted, is answered {code}");
    }
    ns.scale(AGENT, "pair", 2, "kubectl").await?;
    await_budget(&ns, "pair").await?;
    ns.scale(AGENT, "pair", 0, "kubectl").await?;
    ns.until_gone(DISRUPTION_BUDGET, &budget, GONE).await
}

async fn two_budgets_never_block_an_eviction(ns: Namespace) -> Result<()> {
    ns.start(&workload("pair", json!({"replicas": 2}))).await?;
    let budget = DISRUPTION_BUDGET.child_of("pair");
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"recif.dev/agent": "pair"}}});
    let allows = |it: &Object| it.number("/status/disruptionsAllowed") == 1;
    for phase in ["Running", "Resolving"] {
        await_budget(&ns, "pair").await?;
        if phase == "Resolving" {
            // Its Pods go on while it waits.
            ns.edit(AGENT, "pair", json!({"spec": {"tools": ["nowhere"]}})).await?;
            ns.await_agent_not_ready("pair", REPORT_TIMEOUT, phase, &["nowhere"]).await?;
        }
        ns.apply(&object(DISRUPTION_BUDGET, "users", spec.clone())).await?;
        ns.until_gone(DISRUPTION_BUDGET, &budget, REPORT_TIMEOUT).await?;
        ns.until(DISRUPTION_BUDGET, "users", START_TIMEOUT, "allows to evict one of two Pods", allows).await?;
        let pods = ns.list(POD).await?;
        let pod = pods.iter().find(|pod| pod.metadata.deletion_timestamp.is_none()).context("no Pod")?;
        let code = evict(&ns, pod).await?;
        ensure!(code == 201, "in {phase}, with a budget of the user's, the eviction is answered {code}");
        ns.delete(DISRUPTION_BUDGET, "users").await?;
    }
    ns.edit(AGENT, "pair", json!({"spec": {"tools": []}})).await?;
    await_budget(&ns, "pair").await
}

async fn a_rollout_of_the_gateway_loses_no_request(ns: Namespace) -> Result<()> {
    let [_, through_gateway] = start(&ns, "behind", 1).await?;
    let before = gateway::pods(&ns.env).await?;
    ensure!(before.len() == 2, "{} gateways", before.len());
    let load = BackgroundLoad::start(&ns.env, &[through_gateway], LOAD_PROFILE).await?;
    gateway::roll_out(&ns.env).await?;
    let after = gateway::pods(&ns.env).await?;
    ensure!(after.iter().all(|pod| before.iter().all(|old| old.id() != pod.id())), "a gateway was not replaced");
    load.stop(50, 4).await
}

async fn requests_do_not_notice_that_the_control_plane_dies(ns: Namespace) -> Result<()> {
    let targets = start(&ns, "steadfast", 1).await?;
    await_ended_namespaces(&ns.env, &ns.name).await?;
    // A connection may go to either gateway, and a gateway that has never seen a caller cannot authenticate it during the
    // outage.
    for _ in 0..12 {
        for target in &targets {
            await_response(&ns, target).await?;
        }
    }
    let replicas = operator::replicas(&ns.env).await?;
    let load = BackgroundLoad::start(&ns.env, &targets, LOAD_PROFILE).await?;
    for pod in operator::pods(&ns.env).await? {
        operator::kill(&ns.env, &pod.name_any()).await?;
    }
    ns.env.cluster(&["restart-apiserver"]).await?;
    operator::ready(&ns.env, replicas).await?;
    ns.env.cluster(&["restart-etcd"]).await?;
    ns.until(AGENT, "steadfast", START_TIMEOUT, "is still there", Object::is_running).await?;
    load.stop(50, 4).await
}

/// `E2E_OUTAGE` (16) is the length of the outage of the API server in seconds; that of etcd is a quarter of it.
async fn requests_do_not_notice_that_the_control_plane_is_away(ns: Namespace) -> Result<()> {
    let outage = Duration::from_secs(number("E2E_OUTAGE", 16)?);
    let [_, through_gateway] = start(&ns, "orphan", 1).await?;
    await_ended_namespaces(&ns.env, &ns.name).await?;
    for _ in 0..12 {
        await_response(&ns, &through_gateway).await?;
    }
    let load = BackgroundLoad::start(&ns.env, &[through_gateway], LOAD_PROFILE).await?;
    for (part, length) in [("apiserver", outage), ("etcd", outage / 4)] {
        ns.env.cluster(&[&format!("stop-{part}")]).await?;
        sleep(length).await;
        ns.env.cluster(&[&format!("start-{part}")]).await?;
    }
    ns.until(AGENT, "orphan", START_TIMEOUT, "is still there", Object::is_running).await?;
    load.stop(50, 4).await?;
    // The next scenario needs an operator that works: kube-proxy routes to the API server again only after the back-off of
    // its watch, up to 30 s.
    ns.apply(&agent("after", json!({"replicas": 0}))).await?;
    ns.until(AGENT, "after", Duration::from_secs(120), "is stopped", |it| it.phase() == "Terminated").await.map(drop)
}
