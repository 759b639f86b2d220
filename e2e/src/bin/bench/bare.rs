//! Sends the operator's requests from a bare loop, to measure how fast this API server accepts them.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    agents::{AT_ONCE, AgentNamespace, timeout_for},
    bench_env::names,
    template::ApplyTemplate,
};

const PHASES: [&str; 4] = ["Resolving", "Rendering", "Deploying", "Running"];
const FINALIZER: &str = "recif.dev/cleanup";

/// Creates agents, sends for each the requests that the operator sends, and returns the total time.
pub(crate) async fn send(namespace: &AgentNamespace, template: &ApplyTemplate, count: usize) -> Result<Duration> {
    let started = Instant::now();
    let each = stream::iter(names(count)).map(Ok::<_, anyhow::Error>);
    each.try_for_each_concurrent(AT_ONCE, async |name| one(namespace, template, &name).await).await?;
    Ok(started.elapsed())
}

async fn one(namespace: &AgentNamespace, template: &ApplyTemplate, name: &str) -> Result<()> {
    namespace.agent(name, json!({})).await?;
    let finalizer = json!([{"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(finalizer)?);
    let agent = namespace.agents.patch(name, &PatchParams::default(), &patch).await.context("add the finalizer")?;
    let uid = agent.uid().unwrap_or_default();
    for (done, status) in statuses(template).enumerate() {
        if done == 2 {
            apply_children(namespace, template, name, &uid).await?;
        }
        let change = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(change)?);
        namespace.agents.patch_status(name, &PatchParams::default(), &patch).await.context("write the status")?;
    }
    Ok(())
}

async fn apply_children(namespace: &AgentNamespace, template: &ApplyTemplate, name: &str, uid: &str) -> Result<()> {
    let params = PatchParams::apply("recif-operator").force();
    for (kind, body) in template.children_of(name, uid)? {
        let api: Api<DynamicObject> = Api::namespaced_with(namespace.client.clone(), &namespace.name, &kind);
        let child = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let applied = api.patch(&child, &params, &Patch::Apply(body)).await;
        applied.with_context(|| format!("apply {} {child}", kind.kind))?;
    }
    Ok(())
}

/// Returns the statuses that are written one after the other, each with a longer history.
pub(crate) fn statuses(template: &ApplyTemplate) -> impl Iterator<Item = Value> {
    PHASES.iter().zip(2..).map(|(phase, entries)| {
        let mut status = template.status.clone();
        status["phase"] = json!(phase);
        if let Some(history) = status.get_mut("history").and_then(Value::as_array_mut) {
            history.truncate(entries);
        }
        status
    })
}

/// Deletes everything that was created. No operator runs that would remove the finalizers of the agents.
pub(crate) async fn remove(namespace: &AgentNamespace, count: usize) -> Result<()> {
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let each = stream::iter(names(count)).map(Ok::<_, anyhow::Error>);
    each.try_for_each_concurrent(AT_ONCE, async |name| {
        let released = namespace.agents.patch(&name, &PatchParams::default(), &release).await;
        released.map(drop).context("remove the finalizer")
    })
    .await?;
    let namespaces: Api<Namespace> = Api::all(namespace.client.clone());
    namespaces.delete(&namespace.name, &DeleteParams::default()).await.context("delete the namespace")?;
    let patience = timeout_for(count);
    let deadline = Instant::now() + patience;
    while namespaces.get_opt(&namespace.name).await?.is_some() {
        if Instant::now() > deadline {
            bail!("namespace {} is still there after {patience:?}", namespace.name);
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}
