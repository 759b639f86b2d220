//! Tests drift: children that another client changes or deletes are restored; fields that other managers own are left
//! unchanged.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use e2e::audit::{AuditEvent, AuditMark, describe_requests};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, CHILDREN, CONFIG_MAP, DEPLOYMENT, KubeKind, NETWORK_POLICY, SECRET, SERVICE, SERVICE_ACCOUNT},
    manifests::{agent, http_tool},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_drifted_child_is_back_with_one_write,
    a_deleted_child_is_back_with_one_write,
    a_deleted_deployment_is_back_with_two_moves,
    a_child_that_lost_its_label_or_owner_is_taken_back,
    a_foreign_annotation_on_a_child_costs_nothing,
    replicas_of_another_manager_are_left_alone,
    a_field_that_a_client_keeps_changing_starts_no_write_war,
);

/// Time limit for the repair, by the audit log: a busy machine may be late to see it here.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of the wait itself, which is longer, so that a late repair can be distinguished from a missing one.
const TIMEOUT: Duration = Duration::from_secs(15);

async fn start(ns: &Namespace) -> Result<Object> {
    ns.provide(&http_tool("weather")).await?;
    let running = ns.start(&agent("owner", json!({"tools": ["weather"]}))).await?;
    ns.await_event("owner", "Running").await?;
    Ok(running)
}

async fn a_drifted_child_is_back_with_one_write(ns: Namespace) -> Result<()> {
    start(&ns).await?;
    let first = ns.mark().await?;
    let drifts: [(KubeKind, Value, &str); 6] = [
        (
            SERVICE_ACCOUNT,
            json!([{"op": "replace", "path": "/metadata/labels/app.kubernetes.io~1part-of", "value": "drift"}]),
            "",
        ),
        (
            CONFIG_MAP,
            json!([{"op": "replace", "path": "/data/CORAIL_STRATEGY", "value": "drift"}]),
            "/data/CORAIL_STRATEGY",
        ),
        (SECRET, json!([{"op": "replace", "path": "/data/CORAIL_TOOLS", "value": "ZHJpZnQ="}]), "/data/CORAIL_TOOLS"),
        (
            SERVICE,
            json!([{"op": "replace", "path": "/spec/ports/0/targetPort", "value": 9999}]),
            "/spec/ports/0/targetPort",
        ),
        (
            NETWORK_POLICY,
            json!([{"op": "replace", "path": "/spec/ingress/0/ports/0/endPort", "value": 7000}]),
            "/spec/ingress/0/ports/0/endPort",
        ),
        (
            DEPLOYMENT,
            json!([{"op": "replace", "path": "/spec/strategy/rollingUpdate/maxSurge", "value": 2}]),
            "/spec/strategy/rollingUpdate/maxSurge",
        ),
    ];
    for (kind, drift, pointer) in drifts {
        let name = kind.child_of("owner");
        let value = |object: &Object| if pointer.is_empty() { part_of(object) } else { object.at(pointer).clone() };
        let before = value(&ns.get(kind, &name).await?);
        let mark = ns.mark().await?;
        let drifted = patch(&ns, kind, &name, drift).await?;
        ensure!(value(&drifted) != before, "{} did not drift", kind.kind);
        let since = Timestamp::now();
        ns.until(kind, &name, TIMEOUT, "is as it was", |it| value(it) == before).await?;
        back_with_one_write(&ns, kind, since, mark).await?;
    }
    no_other_write(&ns, first, CHILDREN.len()).await
}

async fn a_deleted_child_is_back_with_one_write(ns: Namespace) -> Result<()> {
    start(&ns).await?;
    let first = ns.mark().await?;
    for kind in [SERVICE_ACCOUNT, CONFIG_MAP, SECRET, SERVICE, NETWORK_POLICY] {
        let name = kind.child_of("owner");
        let before = ns.get(kind, &name).await?;
        let mark = ns.mark().await?;
        let since = Timestamp::now();
        ns.delete(kind, &name).await?;
        ns.until(kind, &name, TIMEOUT, "is there again", |it| it.id() != before.id()).await?;
        back_with_one_write(&ns, kind, since, mark).await?;
    }
    // The status contains the uid of the Service.
    no_other_write(&ns, first, 6).await?;
    ensure!(ns.get(AGENT, "owner").await?.is_running(), "the agent left Running");
    Ok(())
}

async fn a_deleted_deployment_is_back_with_two_moves(ns: Namespace) -> Result<()> {
    let agent = start(&ns).await?;
    let before = ns.get(DEPLOYMENT, "owner").await?;
    let mark = ns.mark().await?;
    let since = Timestamp::now();
    ns.delete(DEPLOYMENT, "owner").await?;
    ns.until(DEPLOYMENT, "owner", TIMEOUT, "is there again", |it| it.id() != before.id()).await?;
    let seq = agent.last_seq();
    let again = |it: &Object| it.is_running() && it.last_seq() > seq;
    let running = ns.until(AGENT, "owner", START_TIMEOUT, "is Running again", again).await?;
    let moves = running.transitions_after(seq);
    ensure!(moves == ["Running>Deploying", "Deploying>Running"], "moves: {moves:?}");
    back_with_one_write(&ns, DEPLOYMENT, since, mark).await
}

async fn a_child_that_lost_its_label_or_owner_is_taken_back(ns: Namespace) -> Result<()> {
    let agent = start(&ns).await?;
    let lost = [
        json!([{"op": "remove", "path": "/metadata/labels/app.kubernetes.io~1managed-by"}]),
        json!([{"op": "remove", "path": "/metadata/ownerReferences"}]),
    ];
    for kind in CHILDREN {
        for (nth, drift) in (1..).zip(&lost) {
            let name = kind.child_of("owner");
            let (mark, since) = (ns.mark().await?, Timestamp::now());
            patch(&ns, kind, &name, drift.clone()).await?;
            let ours = |it: &Object| {
                let owners = it.metadata.owner_references.iter().flatten();
                let managed = it.metadata.labels.iter().flatten().any(|(_, value)| value == crds::MANAGED_BY);
                managed && owners.filter(|owner| Some(&owner.uid) == agent.metadata.uid.as_ref()).count() == 1
            };
            ns.until(kind, &name, TIMEOUT, &format!("is ours again after {drift}"), ours).await?;
            let requests = ns.operator_requests(mark).await?;
            // Without its label the child is in no informer cache, and the apply that creates it is refused first.
            let writes = requests_for(&requests, kind.plural);
            ensure!(writes.len() <= 2, "writes: {}", describe_requests(writes));
            let done: Vec<&AuditEvent> = writes.iter().copied().filter(|it| it.succeeded()).collect();
            let [write] = done.as_slice() else { bail!("writes: {}", describe_requests(writes)) };
            // The second repair in a row is delayed by the two seconds of the back-off against a write conflict with
            // another manager.
            check_time(kind, since, write, repair_timeout(&ns) * nth)?;
        }
    }
    Ok(())
}

async fn a_foreign_annotation_on_a_child_costs_nothing(ns: Namespace) -> Result<()> {
    start(&ns).await?;
    let mark = ns.mark().await?;
    for kind in CHILDREN {
        let note = json!({"metadata": {"annotations": {"example.com/note": "seen"}}});
        ns.edit(kind, &kind.child_of("owner"), note).await?;
    }
    // Only an observation over time shows that no request follows.
    ns.env.audit.ensure_quiet(mark, &ns.name, Duration::from_secs(3)).await
}

async fn replicas_of_another_manager_are_left_alone(ns: Namespace) -> Result<()> {
    start(&ns).await?;
    ns.scale(DEPLOYMENT, "owner", 2, "horizontal-autoscaler").await?;
    let reported = |it: &Object| {
        let all = it.at("/status/conditions").as_array().into_iter().flatten();
        let mut messages = all.filter_map(|condition| condition["message"].as_str());
        messages.any(|message| message.contains("horizontal-autoscaler"))
    };
    ns.until(AGENT, "owner", START_TIMEOUT, "says who owns replicas", reported).await?;
    let ready = |it: &Object| it.number("/status/readyReplicas") == 2;
    let deployment = ns.until(DEPLOYMENT, "owner", START_TIMEOUT, "has two ready Pods", ready).await?;
    ensure!(deployment.number("/spec/replicas") == 2, "replicas were set back");

    ns.edit(AGENT, "owner", json!({"spec": {"replicas": 3}})).await?;
    let three = |it: &Object| it.number("/spec/replicas") == 3;
    ns.until(DEPLOYMENT, "owner", REPORT_TIMEOUT, "follows an edit of spec.replicas", three).await?;
    Ok(())
}

async fn a_field_that_a_client_keeps_changing_starts_no_write_war(ns: Namespace) -> Result<()> {
    start(&ns).await?;
    let mark = ns.mark().await?;
    let stubborn = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for round in 0..100 {
            ticks.tick().await;
            let value = format!("drift-{round}");
            ns.edit(CONFIG_MAP, "owner-config", json!({"data": {"CORAIL_STRATEGY": value}})).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    stubborn.await?;
    let requests = ns.operator_requests(mark).await?;
    let writes = requests_for(&requests, "configmaps");
    ensure!(!writes.is_empty() && writes.len() <= 6, "in 10 s: {}", describe_requests(writes));
    let back = |it: &Object| it.text("/data/CORAIL_STRATEGY") == "simple";
    ns.until(CONFIG_MAP, "owner-config", Duration::from_secs(60), "is as it was in the end", back).await?;
    Ok(())
}

async fn patch(ns: &Namespace, kind: KubeKind, name: &str, operations: Value) -> Result<Object> {
    let patch = Patch::Json::<()>(serde_json::from_value(operations)?);
    let params = PatchParams { field_manager: Some("stranger".into()), ..PatchParams::default() };
    Ok(ns.api(kind).patch(name, &params, &patch).await?)
}

fn part_of(object: &Object) -> Value {
    json!(object.metadata.labels.iter().flatten().find(|(key, _)| *key == "app.kubernetes.io/part-of"))
}

/// Returns the time limit of a repair. It is longer while the operator drops wakes on purpose, because a repair then waits for the
/// next wake.
fn repair_timeout(ns: &Namespace) -> Duration {
    if ns.env.paths.lose_wakes { TIMEOUT } else { REPAIR_TIMEOUT }
}

/// Checks that the operator has written the child once since the mark, in time.
async fn back_with_one_write(ns: &Namespace, kind: KubeKind, since: Timestamp, mark: AuditMark) -> Result<()> {
    let requests = ns.operator_requests(mark).await?;
    let writes = requests_for(&requests, kind.plural);
    let [write] = writes.as_slice() else {
        bail!("writes of the {}: {}", kind.kind, describe_requests(writes.iter().copied()))
    };
    check_time(kind, since, write, repair_timeout(ns))
}

/// Checks that the API server had answered the write of a child within the limit after `since`.
fn check_time(kind: KubeKind, since: Timestamp, write: &AuditEvent, limit: Duration) -> Result<()> {
    let took = write.answered.duration_since(since);
    ensure!(took <= SignedDuration::try_from(limit)?, "{} was back after {took:?}", kind.kind);
    Ok(())
}

/// Checks that the operator has made exactly this many writes after nothing changes any more.
async fn no_other_write(ns: &Namespace, since: AuditMark, writes: usize) -> Result<()> {
    ns.stays_the_same(REPAIR_TIMEOUT).await?;
    let requests = ns.operator_requests(since).await?;
    let made = requests.iter().filter(|request| request.is_write()).count();
    ensure!(made == writes, "{made} writes for {writes} children: {}", describe_requests(&requests));
    Ok(())
}

fn requests_for<'a>(requests: &'a [AuditEvent], resource: &str) -> Vec<&'a AuditEvent> {
    requests.iter().filter(|request| request.is_write() && request.resource() == resource).collect()
}
