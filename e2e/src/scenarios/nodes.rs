//! Tests that the loss of a node costs nothing that the other one can give. These scenarios need a cluster with two nodes
//! (`hack/e2e nodes`), of which the second one can be killed and cut off, and run alone.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use e2e::audit::{AuditEvent, describe_requests};
use kube::{ResourceExt as _, api::DeleteParams, runtime::watcher::Config};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{
    drain::{self, LOAD_PROFILE, is_ready, settled},
    traffic::{await_response, send_request, targets_of},
};
use crate::{
    client::{BackgroundLoad, ClientTarget, HttpClientConnection, LoadProfile},
    env::{Env, output},
    gateway,
    kinds::{AGENT, DISRUPTION_BUDGET, NODE, POD},
    manifests::{agent, workload},
    namespace::{Namespace, START_TIMEOUT},
    node_load::NodeLoad,
    object::{Object, ObjectExt as _, ObjectsByName},
    operator::{self, NAMESPACE},
    scenario::{Scenario, scenarios},
    watch::{await_condition, poll},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Exclusive:
    two_replicas_are_one_per_node,
    a_drained_node_loses_no_request,
    a_killed_node_is_named_and_the_other_one_serves_and_leads,
    a_leader_that_was_cut_off_writes_nothing_past_its_lease,
    a_pod_that_was_deleted_while_its_node_was_cut_off_gets_no_request,
);

const FIRST: &str = "recif";
/// The node that can be lost, and its number for `hack/cluster`.
const SECOND: &str = "recif-2";
const NUMBER: &str = "2";
/// Longest wait until a node is missed: ten seconds of silence, and the period of the check.
const MISSED: Duration = Duration::from_secs(30);
/// Longest wait until a node is back with all its Pods.
const BACK: Duration = Duration::from_secs(120);
/// Longest wait for another holder of the lease.
const TAKE_OVER: Duration = Duration::from_secs(15);

async fn two_replicas_are_one_per_node(ns: Namespace) -> Result<()> {
    let env = &ns.env;
    prepare(env).await?;
    ns.start(&workload("pair", json!({"replicas": 2}))).await?;
    let pods = ns.list(POD).await?;
    ensure!(is_one_per_node(&pods), "the agent's Pods are on {:?}", nodes_of(&pods));
    // A rollout ends as evenly as a first start.
    env.kubectl(&["--namespace", NAMESPACE, "rollout", "restart", &format!("deployment/{}", operator::NAME)]).await?;
    operator::ready(env, 2).await?;
    gateway::roll_out(env).await?;
    for (name, pods) in [(operator::NAME, operator::pods(env).await?), (gateway::NAME, gateway::pods(env).await?)] {
        ensure!(is_one_per_node(&pods), "the Pods of {name} are on {:?}", nodes_of(&pods));
    }
    Ok(())
}

async fn a_drained_node_loses_no_request(ns: Namespace) -> Result<()> {
    let env = &ns.env;
    prepare(env).await?;
    let [service, through_gateway] = drain::start(&ns, "pair", 2).await?;
    let [_, single] = drain::start(&ns, "single", 1).await?;
    let of_pair = DISRUPTION_BUDGET.child_of("pair");
    for (place, name) in [(NAMESPACE, operator::NAME), (NAMESPACE, gateway::NAME), (ns.name.as_str(), of_pair.as_str())]
    {
        let allows_one = |budgets: &ObjectsByName| {
            let status = |field: &str| budgets.get(name).map(|it| it.number(&format!("/status/{field}")));
            (status("expectedPods") == Some(2) && status("disruptionsAllowed") == Some(1)).then_some(())
        };
        let what = format!("{name} is a budget of one of two Pods");
        await_condition(env.within(place, DISRUPTION_BUDGET), Config::default(), MISSED, &what, allows_one).await?;
    }
    let node = node_of_pod(&ns, "single").await?;
    let load = BackgroundLoad::start(env, &[service, through_gateway, single], LOAD_PROFILE).await?;
    let mut command = env.in_cluster(&env.file("hack/kubectl"));
    command.args(["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"]);
    let drained = output(command, None, Duration::from_secs(150)).await;
    let left = async {
        drained?;
        let pods = settled(&ns, 3).await?;
        ensure!(pods.values().all(|pod| pod.text("/spec/nodeName") != node), "a Pod is still on {node}");
        operator::ready(env, 2).await?;
        gateway::ready(env, 0).await
    }
    .await;
    env.kubectl(&["uncordon", &node]).await?;
    left?;
    load.stop(100, 4).await
}

async fn a_killed_node_is_named_and_the_other_one_serves_and_leads(ns: Namespace) -> Result<()> {
    let env = &ns.env;
    prepare(env).await?;
    // A request that was sent to the dead Pod may have been carried out, and ends after this time.
    ns.start(&workload("pair", json!({"replicas": 2, "timeout": "3s"}))).await?;
    let leader = lead_from(env, SECOND).await?;
    let gateway = gateway_on(&ns, FIRST, "pair").await?;
    for _ in 0..12 {
        await_response(&ns, &gateway).await?;
    }
    let before = failed_connects(&ns, &gateway).await?;
    let load = NodeLoad::start(env, &gateway).await?;
    env.cluster(&["kill-node", NUMBER]).await?;
    let other = |holder: &str| !holder.is_empty() && holder != leader;
    let lead = operator::await_leader(env, TAKE_OVER, "another holder of the lease", other);
    let fail = poll(TAKE_OVER, "a connect that failed", || async {
        Ok((failed_connects(&ns, &gateway).await? > before).then(|| load.now()))
    });
    let (_, failed) = tokio::try_join!(lead, fail)?;
    sleep(Duration::from_secs(10)).await;
    load.stop().await?.serves_after(failed)?;

    poll(START_TIMEOUT, "`recif why` names the node", || async {
        let (code, said) = env.recif(&["why", "--namespace", &ns.name, "agent/pair"]).await?;
        ensure!(code == 3 && said.contains(&format!("node {SECOND} ")), "{code}: {said}");
        Ok(Some(()))
    })
    .await?;
    env.cluster(&["start"]).await?;
    ns.await_agent_running("pair").await.map(drop)
}

async fn a_leader_that_was_cut_off_writes_nothing_past_its_lease(ns: Namespace) -> Result<()> {
    let env = &ns.env;
    prepare(env).await?;
    let old = lead_from(env, SECOND).await?;
    let mark = env.audit.mark().await?;
    let over = AtomicBool::new(false);
    // The leader is in the middle of its work at any moment.
    let churn = async {
        for round in 0.. {
            for index in 0..10 {
                let fields = json!({"replicas": 0, "systemPrompt": format!("round {round}")});
                ns.apply(&agent(&format!("a{index}"), fields)).await?;
                sleep(Duration::from_millis(50)).await;
            }
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    let cut = async {
        sleep(Duration::from_secs(3)).await;
        env.cluster(&["cut-node", NUMBER]).await?;
        let other = |holder: &str| !holder.is_empty() && holder != old;
        let new = operator::await_leader(env, TAKE_OVER, "another holder of the lease", other).await?;
        sleep(Duration::from_secs(5)).await;
        env.cluster(&["reconnect-node", NUMBER]).await?;
        // What the old leader's machine had to send arrives within this time, if it ever does.
        sleep(Duration::from_secs(30)).await;
        over.store(true, Ordering::Relaxed);
        Ok::<_, anyhow::Error>(new)
    };
    let ((), new) = tokio::try_join!(churn, cut)?;
    let mut writes = env.audit.requests_by_operator(mark, Some(&ns.name)).await?;
    writes.retain(|it| it.is_write() && it.succeeded() && !it.is_upkeep());
    let by = |uid: &str| writes.iter().filter(|it| it.pod_uid() == uid).collect::<Vec<&AuditEvent>>();
    ensure!(!by(&old).is_empty(), "the old leader had written nothing");
    let first = by(&new).iter().map(|it| it.received).min().context("the new leader wrote nothing")?;
    let mut late = by(&old);
    late.retain(|it| it.received > first);
    ensure!(late.is_empty(), "the old leader wrote after the first write of the new one: {}", describe_requests(late));
    let done = |agents: &ObjectsByName| agents.values().all(|it| it.phase() == "Terminated" && it.is_current());
    ns.until_all(AGENT, START_TIMEOUT, "stopped, as the last edit says", done).await.map(drop)
}

async fn a_pod_that_was_deleted_while_its_node_was_cut_off_gets_no_request(ns: Namespace) -> Result<()> {
    let env = &ns.env;
    prepare(env).await?;
    env.kubectl(&["cordon", FIRST]).await?;
    let started = ns.start(&workload("moved", json!({}))).await;
    env.kubectl(&["uncordon", FIRST]).await?;
    started?;
    let targets = targets_of(&ns, "moved").await?;
    for target in &targets {
        await_response(&ns, target).await?;
    }
    let pod = ns.list(POD).await?.pop().context("no Pod")?;
    let old = ClientTarget {
        route: "deleted Pod",
        address: (address_of(&pod)?, 8000).into(),
        prefix: String::new(),
        headers: String::new(),
    };
    env.cluster(&["cut-node", NUMBER]).await?;
    let is_missed = |nodes: &ObjectsByName| (!is_ready(nodes.get(SECOND)?)).then_some(());
    await_condition(env.all(NODE), Config::default(), MISSED, "the second node missed", is_missed).await?;
    ns.api(POD).delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    let is_replaced = |pods: &ObjectsByName| {
        pods.len() == 1 && pods.values().all(|it| it.text("/spec/nodeName") == FIRST && is_ready(it))
    };
    ns.until_all(POD, START_TIMEOUT, "replaced by one on the first node", is_replaced).await?;
    for target in &targets {
        await_response(&ns, target).await?;
    }
    // Only short requests, each on the way that the network chooses at that moment.
    let profile = LoadProfile { requests: 2, streams: 0, stream: Duration::ZERO, retry_on: None };
    let load = BackgroundLoad::start(env, &targets, profile).await?;
    env.cluster(&["reconnect-node", NUMBER]).await?;
    gets_nothing_until_it_ends(&ns, &old).await?;
    restored(env).await?;
    load.stop(100, 0).await
}

/// Checks that the container begins no request until it does not answer any more.
async fn gets_nothing_until_it_ends(ns: &Namespace, pod: &ClientTarget) -> Result<()> {
    let begun = async || -> Result<u64> {
        let stats = timeout(Duration::from_secs(2), send_request(ns, pod, "GET", "/stats")).await??;
        let stats: Value = serde_json::from_str(&stats.text)?;
        stats["begun"].as_u64().context("no counter")
    };
    let deadline = Instant::now() + BACK;
    let (mut before, mut silent) = (None, 0);
    while silent < 3 {
        ensure!(Instant::now() < deadline, "the deleted Pod answers after {BACK:?} still, or never did: {before:?}");
        match begun().await {
            Ok(now) => {
                silent = 0;
                let before = *before.get_or_insert(now);
                ensure!(now == before, "the deleted Pod got {} requests", now - before);
            }
            Err(_) if before.is_some() => silent += 1,
            Err(_) => {}
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Brings the cluster into the state in which every scenario begins, whatever the one before has left.
async fn prepare(env: &Env) -> Result<()> {
    env.cluster(&["start"]).await?;
    env.cluster(&["reconnect-node", NUMBER]).await?;
    env.kubectl(&["uncordon", FIRST, SECOND]).await?;
    restored(env).await
}

/// Waits until both nodes are Ready, with an operator and a gateway on each.
async fn restored(env: &Env) -> Result<()> {
    let up = |nodes: &ObjectsByName| (nodes.len() == 2 && nodes.values().all(is_ready)).then_some(());
    await_condition(env.all(NODE), Config::default(), BACK, "both nodes Ready", up).await?;
    poll(BACK, "operators on both nodes", || async { spread(env, operator::pods(env).await?).await }).await?;
    poll(BACK, "gateways on both nodes", || async { spread(env, gateway::pods(env).await?).await }).await
}

/// Deletes one of two ready Pods that are on the same node, which a drain leaves; returns whether they are on both.
async fn spread(env: &Env, pods: Vec<Object>) -> Result<Option<()>> {
    if pods.len() != 2 || !pods.iter().all(is_ready) {
        return Ok(None);
    }
    if is_one_per_node(&pods) {
        return Ok(Some(()));
    }
    env.within(NAMESPACE, POD).delete(&pods[0].name_any(), &DeleteParams::default()).await?;
    Ok(None)
}

/// Makes the operator on this node hold the lease; returns the uid of its Pod.
async fn lead_from(env: &Env, node: &str) -> Result<String> {
    let leader = operator::leader(env).await?;
    let pods = operator::pods(env).await?;
    let there = pods.iter().find(|pod| pod.text("/spec/nodeName") == node).context("no operator on the node")?.id();
    if leader != there {
        let pod = pods.iter().find(|pod| pod.id() == leader).context("the leader has no Pod")?;
        env.within(NAMESPACE, POD).delete(&pod.name_any(), &DeleteParams::default()).await?;
        operator::await_leader(env, TAKE_OVER, "the lease on the other node", |holder| holder == there).await?;
        restored(env).await?;
    }
    Ok(there)
}

/// Targets an agent through the gateway on this node.
async fn gateway_on(ns: &Namespace, node: &str, agent: &str) -> Result<ClientTarget> {
    let pods = gateway::pods(&ns.env).await?;
    let pod = pods.iter().find(|pod| pod.text("/spec/nodeName") == node).context("no gateway on the node")?;
    let target = ClientTarget::gateway(ns, AGENT, agent).await?;
    Ok(ClientTarget { address: (address_of(pod)?, 8080).into(), ..target })
}

/// Returns how many connects to Pods have failed, by the metrics of this gateway.
async fn failed_connects(ns: &Namespace, gateway: &ClientTarget) -> Result<u64> {
    let address = SocketAddr::new(gateway.address.ip(), 8081);
    let admin = ClientTarget { address, prefix: String::new(), ..gateway.clone() };
    let inside = ns.env.netns().await?;
    let text =
        inside.run(async move { HttpClientConnection::request(&admin, "GET", "/metrics", "").await }).await?.text;
    let found = text.lines().find_map(|line| line.strip_prefix("recif_gateway_retries_total{reason=\"connect\"} "));
    found.context("no recif_gateway_retries_total")?.parse().context("read the counter")
}

fn address_of(pod: &Object) -> Result<IpAddr> {
    pod.text("/status/podIP").parse().context("the Pod has no address")
}

async fn node_of_pod(ns: &Namespace, agent: &str) -> Result<String> {
    let pods = ns.list(POD).await?;
    let pod = pods.iter().find(|pod| pod.name_any().starts_with(&format!("{agent}-"))).context("no Pod")?;
    Ok(pod.text("/spec/nodeName").to_owned())
}

fn nodes_of(pods: &[Object]) -> Vec<&str> {
    let mut nodes: Vec<_> = pods.iter().map(|pod| pod.text("/spec/nodeName")).collect();
    nodes.sort_unstable();
    nodes
}

fn is_one_per_node(pods: &[Object]) -> bool {
    nodes_of(pods) == [FIRST, SECOND]
}
