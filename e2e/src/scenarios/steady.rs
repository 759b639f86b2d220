//! Tests that an idle operator sends no requests. These scenarios come at the end of a run, when no other one disturbs the
//! cluster.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::audit::{AuditEvent, AuditMark, describe_requests};
use kube::ResourceExt as _;
use serde_json::json;

use super::{flows::provide_stub, mcp_servers::start_servers_and_a_user};
use crate::{
    cleanup::await_ended_namespaces,
    kinds::{AGENT, CHILDREN, FLOW, FLOW_SET, KubeKind, OURS},
    manifests::{agent, flow, flow_set, http_tool, prompt, tool},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    operator,
    scenario::{Scenario, scenarios},
    watch::stays_the_same,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Exclusive:
    a_start_costs_its_writes_once,
    a_flows_start_costs_its_writes_once,
    a_restarted_operator_writes_nothing_and_then_asks_nothing,
);

async fn a_start_costs_its_writes_once(ns: Namespace) -> Result<()> {
    ns.provide(&http_tool("weather")).await?;
    let mark = ns.mark().await?;
    let running = ns.start(&agent("counted", json!({"tools": ["weather"]}))).await?;
    costs_its_writes_once(&ns, mark, AGENT, &running).await
}

async fn a_flows_start_costs_its_writes_once(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&http_tool("weather")).await?;
    let tools = json!({"tools": [{"name": "weather"}]});
    let mark = ns.mark().await?;
    let running = ns.start(&flow("counted", &["say"], tools)).await?;
    costs_its_writes_once(&ns, mark, FLOW, &running).await
}

/// Checks that since the mark the operator has sent exactly the requests for the start of this workload: the finalizer, a
/// status for each phase, a write per child, and at most three Events.
async fn costs_its_writes_once(ns: &Namespace, mark: AuditMark, kind: KubeKind, running: &Object) -> Result<()> {
    ns.await_event(&running.name_any(), "Running").await?;
    let requests = ns.operator_requests(mark).await?;
    let count = |resource: &str, write: bool| {
        requests.iter().filter(|it| it.is_write() == write && it.resource() == resource).count()
    };
    let status = format!("{}/status", kind.plural);
    ensure!(count(kind.plural, true) == 1, "the finalizer costs one write: {}", describe_requests(&requests));
    // A Pod that takes more than ten seconds, on a busy machine, is reported once as waited for.
    let waits = usize::try_from(running.last_seq())?.saturating_sub(running.transitions_after(0).len());
    ensure!(waits <= 1, "{waits} waits were written: {}", describe_requests(&requests));
    ensure!(count(&status, true) == 4 + waits, "four moves cost four writes: {}", describe_requests(&requests));
    let children = running.at("/status/children").as_array().map(Vec::as_slice).unwrap_or_default();
    for kind in CHILDREN {
        let made = children.iter().filter(|child| child["kind"] == kind.kind).count();
        ensure!(made > 0, "there is no {}", kind.kind);
        ensure!(
            count(kind.plural, true) == made,
            "{made} {} cost as many writes: {}",
            kind.kind,
            describe_requests(&requests)
        );
        ensure!(count(kind.plural, false) == 0, "{} cost looks: {}", kind.kind, describe_requests(&requests));
    }
    ensure!(count("events", true) <= 3, "Events: {}", describe_requests(&requests));
    let known = |it: &&AuditEvent| {
        let resource = it.resource();
        let child = CHILDREN.iter().any(|kind| kind.plural == resource);
        child || (it.is_write() && (resource == kind.plural || resource == status || resource == "events"))
    };
    let other: Vec<&AuditEvent> = requests.iter().filter(|it| !known(it)).collect();
    ensure!(other.is_empty(), "also asked: {}", describe_requests(other));
    Ok(())
}

async fn a_restarted_operator_writes_nothing_and_then_asks_nothing(ns: Namespace) -> Result<()> {
    await_ended_namespaces(&ns.env, &ns.name).await?;
    ns.provide(&http_tool("weather")).await?;
    ns.apply(&tool("broken", json!({"type": "cli"}))).await?;
    for (name, fields) in [
        ("runs", json!({"tools": ["weather"]})),
        ("stopped", json!({"replicas": 0})),
        ("waits", json!({"tools": ["nowhere", "broken"]})),
        ("fails", json!({"storage": "postgresql"})),
    ] {
        ns.apply(&agent(name, fields)).await?;
    }
    provide_stub(&ns).await?;
    ns.apply(&prompt("torn", "---\n[\n---\n")).await?;
    ns.apply(&flow("flow-runs", &["say"], json!({}))).await?;
    ns.apply(&flow("flow-waits", &["torn", "nowhere"], json!({}))).await?;
    ns.apply(&flow_set("set-degraded", &[("one", &["say"]), ("two", &["nowhere"])], json!({}))).await?;
    ns.await_running(FLOW, "flow-runs").await?;
    let degraded = |it: &Object| it.phase() == "Running" && it.condition("Ready").reason == "Degraded";
    ns.until(FLOW_SET, "set-degraded", START_TIMEOUT, "is Running and Degraded", degraded).await?;
    ns.await_not_ready(FLOW, "flow-waits", REPORT_TIMEOUT, "Resolving", &["nowhere", "torn"]).await?;
    ns.await_agent_running("runs").await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    ns.await_agent_not_ready("fails", REPORT_TIMEOUT, "Failed", &["MissingDatabaseUrl"]).await?;
    let stopped = |it: &Object| it.phase() == "Terminated";
    ns.until(AGENT, "stopped", START_TIMEOUT, "is Terminated", stopped).await?;
    start_servers_and_a_user(&ns).await?;

    for (name, reason) in [
        ("runs", "Running"),
        ("stopped", "Terminated"),
        ("waits", "MissingDependency"),
        ("fails", "MissingDatabaseUrl"),
        ("flow-runs", "Running"),
        ("flow-waits", "MissingDependency"),
        ("set-degraded", "Running"),
    ] {
        ns.await_event(name, reason).await?;
    }

    let replicas = operator::replicas(&ns.env).await?;
    let mark = ns.mark().await?;
    let old = operator::leader(&ns.env).await?;
    for pod in operator::pods(&ns.env).await? {
        operator::kill(&ns.env, &pod.name_any()).await?;
    }
    operator::ready(&ns.env, replicas).await?;
    let other = |holder: &str| !holder.is_empty() && holder != old;
    operator::await_leader(&ns.env, Duration::from_secs(30), "a new holder of the lease", other).await?;
    // The new operator has resumed its work when it has reconciled a new tool; its writes until then are counted.
    ns.provide(&tool("fresh", json!({}))).await?;
    let writes = others(&ns, mark, "fresh").await?;
    ensure!(writes.is_empty(), "after the restart: {}", describe_requests(&writes));

    let mark = ns.mark().await?;
    let apis = OURS.map(|kind| (kind, ns.env.all(kind))).into();
    stays_the_same(apis, Duration::from_secs(60)).await?;
    let mut requests = ns.env.audit.requests_by_operator(mark, None).await?;
    requests.retain(|request| !request.is_upkeep());
    ensure!(requests.is_empty(), "in a minute without anything to do: {}", describe_requests(&requests));
    let _: ObjectsByName =
        ns.until_all(AGENT, REPORT_TIMEOUT, "all agents still there", |agents| agents.len() == 5).await?;
    Ok(())
}

/// Returns the operator's writes except those of this tool.
async fn others(ns: &Namespace, mark: AuditMark, tool: &str) -> Result<Vec<AuditEvent>> {
    let mut requests = ns.operator_requests(mark).await?;
    requests.retain(|request| request.is_write() && request.name() != tool);
    Ok(requests)
}
