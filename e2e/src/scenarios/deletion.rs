//! Tests deletion with every propagation policy: no child is created again, no object is left behind, and no deletion
//! blocks.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::audit::{AuditEvent, describe_requests};
use kube::{ResourceExt as _, api::PropagationPolicy};
use serde_json::json;

use crate::{
    kinds::{AGENT, CHILDREN, DEPLOYMENT, NAMESPACE},
    manifests::{agent, http_tool},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
    watch::await_condition,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    background_deletion_takes_the_children_and_makes_none_again,
    foreground_deletion_takes_the_children_and_makes_none_again,
    orphan_deletion_leaves_the_children_and_a_successor_takes_them,
    an_agent_deleted_while_it_waits_is_gone,
    an_agent_deleted_while_it_starts_is_gone,
    a_deleted_namespace_takes_its_agents_along,
);

const GONE: Duration = Duration::from_secs(60);
/// Longest wait for a namespace: the namespace controller comes back to draining Pods only after half of their grace
/// period, and has many namespaces.
const NAMESPACE_GONE: Duration = Duration::from_secs(240);

async fn background_deletion_takes_the_children_and_makes_none_again(ns: Namespace) -> Result<()> {
    takes_the_children(&ns, PropagationPolicy::Background).await
}

async fn foreground_deletion_takes_the_children_and_makes_none_again(ns: Namespace) -> Result<()> {
    takes_the_children(&ns, PropagationPolicy::Foreground).await
}

async fn start(ns: &Namespace) -> Result<()> {
    ns.provide(&http_tool("weather")).await?;
    ns.start(&agent("goner", json!({"tools": ["weather"]}))).await.map(drop)
}

async fn takes_the_children(ns: &Namespace, policy: PropagationPolicy) -> Result<()> {
    start(ns).await?;
    let mark = ns.mark().await?;
    ns.delete_with(AGENT, "goner", policy).await?;
    ns.until_gone(AGENT, "goner", GONE).await?;
    for kind in CHILDREN {
        ns.until_gone(kind, &kind.child_of("goner"), GONE).await?;
    }
    let requests = ns.operator_requests(mark).await?;
    makes_no_child(&requests)?;
    let deletes: Vec<&AuditEvent> = requests.iter().filter(|request| request.verb == "delete").collect();
    // The garbage collector may have deleted the Deployment first.
    let one = deletes.len() <= 1 && deletes.iter().all(|request| request.resource() == "deployments");
    ensure!(one, "deletes: {}", describe_requests(deletes));
    ensure!(
        requests.iter().filter(|request| request.is_write()).count() <= 6,
        "for one deletion: {}",
        describe_requests(&requests)
    );
    Ok(())
}

async fn orphan_deletion_leaves_the_children_and_a_successor_takes_them(ns: Namespace) -> Result<()> {
    start(&ns).await?;
    let deployment = ns.get(DEPLOYMENT, "goner").await?;
    let mark = ns.mark().await?;
    ns.delete_with(AGENT, "goner", PropagationPolicy::Orphan).await?;
    ns.until_gone(AGENT, "goner", GONE).await?;
    makes_no_child(&ns.operator_requests(mark).await?)?;
    for kind in CHILDREN {
        let orphan = ns.get(kind, &kind.child_of("goner")).await?;
        ensure!(orphan.owner_references().is_empty(), "{} still has an owner", kind.kind);
    }

    ns.start(&agent("goner", json!({"tools": ["weather"]}))).await?;
    ensure!(ns.get(DEPLOYMENT, "goner").await?.id() == deployment.id(), "the successor made another Deployment");
    // The sidecars of these Pods know the key of the previous agent.
    ensure!(ns.chat("goner", "hi").await? == "echo: hi", "the successor's Pods do not answer");
    Ok(())
}

async fn an_agent_deleted_while_it_waits_is_gone(ns: Namespace) -> Result<()> {
    ns.apply(&agent("waiter", json!({"tools": ["never"]}))).await?;
    ns.await_agent_not_ready("waiter", REPORT_TIMEOUT, "Resolving", &["never"]).await?;
    ns.delete(AGENT, "waiter").await?;
    ns.until_gone(AGENT, "waiter", REPORT_TIMEOUT).await
}

async fn an_agent_deleted_while_it_starts_is_gone(ns: Namespace) -> Result<()> {
    ns.apply(&agent("brief", json!({}))).await?;
    ns.until(AGENT, "brief", REPORT_TIMEOUT, "is Deploying", |it| it.phase() == "Deploying").await?;
    ns.delete(AGENT, "brief").await?;
    ns.until_gone(AGENT, "brief", GONE).await?;
    for kind in CHILDREN {
        ns.until_gone(kind, &kind.child_of("brief"), GONE).await?;
    }
    Ok(())
}

async fn a_deleted_namespace_takes_its_agents_along(ns: Namespace) -> Result<()> {
    let doomed = Namespace::create(ns.env.clone(), &format!("{}-x", ns.name)).await?;
    doomed.start(&agent("runs", json!({}))).await?;
    doomed.apply(&agent("waits", json!({"tools": ["never"]}))).await?;
    doomed.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["never"]).await?;
    let mark = doomed.mark().await?;
    doomed.delete_itself().await?;
    let named = kube::runtime::watcher::Config::default().fields(&format!("metadata.name={}", doomed.name));
    let gone = |found: &crate::object::ObjectsByName| found.is_empty().then_some(());
    await_condition(ns.env.all(NAMESPACE), named, NAMESPACE_GONE, "the namespace gone", gone).await?;
    let requests = doomed.operator_requests(mark).await?;
    let writes: Vec<_> = requests.iter().filter(|it| it.is_write()).collect();
    // Two to let each agent go, one for a waiting one that says why, and what may be sent before the operator sees the namespace.
    ensure!(writes.len() <= 8, "for two agents whose namespace went: {}", describe_requests(writes));
    Ok(())
}

fn makes_no_child(requests: &[AuditEvent]) -> Result<()> {
    let child = |request: &AuditEvent| CHILDREN.iter().any(|kind| request.resource() == kind.plural);
    let mut made = requests.iter().filter(|it| child(it) && it.is_write() && it.verb != "delete").peekable();
    ensure!(made.peek().is_none(), "for an object that is being deleted: {}", describe_requests(made));
    Ok(())
}
