//! Tests quotas that forbid a child of an agent: reported at once, and the agent starts without an action of the user when
//! the quota is removed.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::gateway_auth::send_request;
use crate::{
    client::ClientTarget,
    kinds::{AGENT, RESOURCE_QUOTA},
    manifests::{agent, quota},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_quota_on_deployments_is_said_and_its_end_is_noticed,
    a_quota_on_replica_sets_is_said_and_its_end_is_noticed,
    a_quota_on_pods_is_said_and_its_end_is_noticed,
);

async fn a_quota_on_deployments_is_said_and_its_end_is_noticed(ns: Namespace) -> Result<()> {
    forbidden_then_lifted(&ns, "count/deployments.apps", None).await
}

async fn a_quota_on_replica_sets_is_said_and_its_end_is_noticed(ns: Namespace) -> Result<()> {
    forbidden_then_lifted(&ns, "count/replicasets.apps", Some(("Deployment/late", "ReplicaSetCreateError"))).await
}

async fn a_quota_on_pods_is_said_and_its_end_is_noticed(ns: Namespace) -> Result<()> {
    forbidden_then_lifted(&ns, "pods", Some(("ReplicaSet/late-", "FailedCreate"))).await
}

/// Checks it for a quota on `what`, and that the agent's Events show the warning of Kubernetes about an object whose kind and name begin so,
/// if there is one.
async fn forbidden_then_lifted(ns: &Namespace, what: &str, warning: Option<(&str, &str)>) -> Result<()> {
    ns.start(&agent("early", json!({}))).await?;
    // The existing agent stays within the quota, which shows that other agents are not affected.
    ns.create_object(&quota(what, "1")).await?;
    let counted = |it: &Object| it.at("/status/used")[what] == "1";
    ns.until(RESOURCE_QUOTA, "limit", Duration::from_secs(30), "counts", counted).await?;

    ns.apply(&agent("late", json!({}))).await?;
    let text = |it: &Object| {
        let ready = it.condition("Ready");
        it.phase() != "Running" && ready.is_false() && ready.message.contains("quota")
    };
    ns.until(AGENT, "late", REPORT_TIMEOUT, "says that a quota forbids it", text).await?;
    if let Some((object, reason)) = warning {
        await_warning(ns, object, reason).await?;
    }
    ensure!(ns.get(AGENT, "early").await?.is_running(), "the other agent suffers");
    ensure!(ns.chat("early", "hi").await? == "echo: hi", "the other agent does not answer");

    ns.delete(RESOURCE_QUOTA, "limit").await?;
    let running = crate::object::ObjectExt::is_running;
    ns.until(AGENT, "late", Duration::from_secs(120), "comes up by itself", running).await?;
    Ok(())
}

/// Waits until the control plane shows this warning among the Events of the agent.
async fn await_warning(ns: &Namespace, object: &str, reason: &str) -> Result<()> {
    let target = ClientTarget::control_plane(&ns.env).await?;
    let path = format!("/v1/agents/{}/late/events", ns.name);
    poll(REPORT_TIMEOUT, &format!("{reason} about {object} among the Events"), || async {
        let answer = send_request(ns, &target, "GET", &path, "").await?;
        let events: Value = serde_json::from_str(&answer.text)?;
        let is_it = |event: &Value| {
            event["reason"] == reason && event["object"].as_str().is_some_and(|shown| shown.starts_with(object))
        };
        ensure!(events["items"].as_array().into_iter().flatten().any(is_it), "{events}");
        Ok(Some(()))
    })
    .await
}
