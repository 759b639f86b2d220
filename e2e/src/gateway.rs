//! Gateway as deployed in the cluster.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{LogParams, Patch, PatchParams},
    runtime::watcher::Config,
};
use serde_json::{Value, json};

use crate::{
    env::Env,
    kinds::{DEPLOYMENT, POD},
    object::{Object, ObjectExt as _, ObjectsByName},
    operator::NAMESPACE,
    watch::await_condition,
};

/// Name of its Deployment and its Service.
pub(crate) const NAME: &str = "recif-gateway";

/// Returns its Pods that are not being deleted.
pub(crate) async fn pods(env: &Env) -> Result<Vec<Object>> {
    let pods = env.within(NAMESPACE, POD).list(&Default::default()).await.context("list the gateway's Pods")?;
    let ours = |pod: &Object| pod.name_any().starts_with(NAME) && pod.metadata.deletion_timestamp.is_none();
    Ok(pods.items.into_iter().filter(ours).collect())
}

/// Returns the lines of audit about this namespace's workloads that its Pods wrote in the last five minutes.
pub(crate) async fn audit(env: &Env, namespace: &str) -> Result<Vec<Value>> {
    let api: Api<Pod> = Api::namespaced(env.client.clone(), NAMESPACE);
    let recent = LogParams { since_seconds: Some(300), ..LogParams::default() };
    let mut lines = Vec::new();
    for pod in pods(env).await? {
        let log = api.logs(&pod.name_any(), &recent).await.context("read the gateway's log")?;
        for line in log.lines().filter(|line| line.contains(r#""target":"audit""#)) {
            let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            if line["namespace"] == namespace {
                lines.push(line);
            }
        }
    }
    Ok(lines)
}

/// Replaces every Pod, as `kubectl rollout restart` does, and waits until the old Pods are gone.
pub(crate) async fn roll_out(env: &Env) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().to_string();
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"e2e/restarted-at": now}}}}});
    let api = env.within(NAMESPACE, DEPLOYMENT);
    let patched =
        api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.context("roll out the gateway")?;
    ready(env, patched.generation()).await?;
    old_ones_gone(env).await
}

/// Waits until none of its Pods is being deleted: for a while such a one still serves requests.
pub(crate) async fn old_ones_gone(env: &Env) -> Result<()> {
    let none_goes = |pods: &ObjectsByName| {
        let mut ours = pods.iter().filter(|(name, _)| name.starts_with(NAME));
        ours.all(|(_, pod)| pod.metadata.deletion_timestamp.is_none()).then_some(())
    };
    let what = "the gateway's old Pods gone";
    await_condition(env.within(NAMESPACE, POD), Config::default(), Duration::from_secs(90), what, none_goes).await
}

/// Waits until this generation of its Deployment, or a later one, has all its Pods ready and no other Pods.
pub(crate) async fn ready(env: &Env, generation: i64) -> Result<()> {
    let is_ready = |objects: &ObjectsByName| {
        let gateway = objects.get(NAME)?;
        let replicas = gateway.number("/spec/replicas");
        let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        (gateway.number("/status/observedGeneration") >= generation
            && gateway.number("/status/observedGeneration") == gateway.generation()
            && counts.iter().all(|count| gateway.number(&format!("/status/{count}")) == replicas))
        .then_some(())
    };
    let what = "every Pod of the gateway ready";
    await_condition(env.within(NAMESPACE, DEPLOYMENT), Config::default(), Duration::from_secs(90), what, is_ready).await
}
