//! Namespace of one scenario, with the actions of a user: apply, edit, delete, wait.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use e2e::audit::{AuditEvent, AuditMark};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy},
    runtime::watcher::Config,
};
use serde_json::{Value, json};

use crate::{
    env::Env,
    kinds::{AGENT, DEPLOYMENT, EVENT, KubeKind, NAMESPACE, OURS, POD, WORKLOADS},
    object::{Object, ObjectExt as _, ObjectsByName},
    watch::{Recorder, await_condition, poll, stays_the_same},
};

/// Longest wait until a workload runs, next to others on a small machine.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(90);
/// Longest wait until a condition reports a problem.
pub(crate) const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Field manager of all writes of the scenarios.
const MANAGER: &str = "e2e";

/// Namespace of one scenario.
#[derive(Clone)]
pub(crate) struct Namespace {
    /// Cluster under test.
    pub(crate) env: Arc<Env>,
    /// Name.
    pub(crate) name: String,
}

impl Namespace {
    /// Creates a namespace that admits only Pods of the `restricted` Pod Security Standard.
    pub(crate) async fn create(env: Arc<Env>, name: &str) -> Result<Self> {
        let body = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "recif.dev/e2e": "true",
            }},
        });
        let object = serde_json::from_value(body)?;
        env.all(NAMESPACE).create(&PostParams::default(), &object).await.with_context(|| format!("make {name}"))?;
        Ok(Self { env, name: name.into() })
    }

    /// Refers to an existing namespace.
    pub(crate) fn existing(env: Arc<Env>, name: &str) -> Self {
        Self { env, name: name.into() }
    }

    /// Deletes the namespace without waiting.
    pub(crate) async fn delete_itself(&self) -> Result<()> {
        self.env.all(NAMESPACE).delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Returns the API of a kind in the namespace.
    pub(crate) fn api(&self, kind: KubeKind) -> Api<Object> {
        self.env.within(&self.name, kind)
    }

    /// Sends a forced server-side apply with strict field validation, as GitOps tools do.
    pub(crate) async fn apply(&self, manifest: &Value) -> Result<Object> {
        let (kind, name) = target(manifest)?;
        let params = PatchParams::apply(MANAGER).force().validation_strict();
        let applied = self.api(kind).patch(&name, &params, &Patch::Apply(manifest)).await;
        applied.with_context(|| format!("apply {}/{name}", kind.kind))
    }

    /// Sends the same server-side apply as a dry run.
    pub(crate) async fn would_apply(
        &self,
        manifest: &Value,
    ) -> Result<Object, Box<dyn std::error::Error + Send + Sync>> {
        let (kind, name) = target(manifest)?;
        let params = PatchParams::apply(MANAGER).force().validation_strict().dry_run();
        Ok(self.api(kind).patch(&name, &params, &Patch::Apply(manifest)).await?)
    }

    /// Creates an object.
    pub(crate) async fn create_object(&self, manifest: &Value) -> Result<Object> {
        let (kind, name) = target(manifest)?;
        let object = serde_json::from_value(manifest.clone())?;
        let created = self.api(kind).create(&PostParams::default(), &object).await;
        created.with_context(|| format!("create {}/{name}", kind.kind))
    }

    /// Sends a merge patch.
    pub(crate) async fn edit(&self, kind: KubeKind, name: &str, patch: Value) -> Result<Object> {
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let edited = self.api(kind).patch(name, &params, &Patch::Merge(patch)).await;
        edited.with_context(|| format!("edit {}/{name}", kind.kind))
    }

    /// Sets the replicas of an object through its scale subresource, as `kubectl scale` and autoscalers do.
    pub(crate) async fn scale(&self, kind: KubeKind, name: &str, replicas: i32, manager: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        let result = self.api(kind).patch_scale(name, &params, &patch).await.map(drop);
        result.with_context(|| format!("scale {}/{name}", kind.kind))
    }

    /// Returns the object, or `None` if it does not exist.
    pub(crate) async fn find(&self, kind: KubeKind, name: &str) -> Result<Option<Object>> {
        self.api(kind).get_opt(name).await.with_context(|| format!("get {}/{name}", kind.kind))
    }

    /// Returns the object, which must exist.
    pub(crate) async fn get(&self, kind: KubeKind, name: &str) -> Result<Object> {
        self.find(kind, name).await?.with_context(|| format!("{}/{name} is not there", kind.kind))
    }

    /// Lists the objects of a kind.
    pub(crate) async fn list(&self, kind: KubeKind) -> Result<Vec<Object>> {
        Ok(self.api(kind).list(&Default::default()).await.with_context(|| format!("list {}", kind.plural))?.items)
    }

    /// Deletes an object with background propagation.
    pub(crate) async fn delete(&self, kind: KubeKind, name: &str) -> Result<()> {
        self.delete_with(kind, name, PropagationPolicy::Background).await
    }

    /// Deletes an object with this propagation policy.
    pub(crate) async fn delete_with(&self, kind: KubeKind, name: &str, policy: PropagationPolicy) -> Result<()> {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let deleted = self.api(kind).delete(name, &params).await;
        deleted.map(drop).with_context(|| format!("delete {}/{name}", kind.kind))
    }

    /// Waits until the object satisfies the predicate.
    pub(crate) async fn until(
        &self,
        kind: KubeKind,
        name: &str,
        deadline: Duration,
        what: &str,
        predicate: impl Fn(&Object) -> bool,
    ) -> Result<Object> {
        let what = format!("{}/{name} {what}", kind.kind);
        let named = Config::default().fields(&format!("metadata.name={name}"));
        let found = |objects: &ObjectsByName| objects.get(name).filter(|object| predicate(object)).cloned();
        await_condition(self.api(kind), named, deadline, &what, found).await
    }

    /// Waits until the objects of a kind satisfy the predicate.
    pub(crate) async fn until_all(
        &self,
        kind: KubeKind,
        deadline: Duration,
        what: &str,
        predicate: impl Fn(&ObjectsByName) -> bool,
    ) -> Result<ObjectsByName> {
        let found = |objects: &ObjectsByName| predicate(objects).then(|| objects.clone());
        await_condition(self.api(kind), Config::default(), deadline, what, found).await
    }

    /// Waits until the object is gone.
    pub(crate) async fn until_gone(&self, kind: KubeKind, name: &str, deadline: Duration) -> Result<()> {
        let what = format!("{}/{name} gone", kind.kind);
        let named = Config::default().fields(&format!("metadata.name={name}"));
        await_condition(self.api(kind), named, deadline, &what, |objects| objects.is_empty().then_some(())).await
    }

    /// Waits until the agent runs its current spec.
    pub(crate) async fn await_agent_running(&self, agent: &str) -> Result<Object> {
        self.await_running(AGENT, agent).await
    }

    /// Waits until the workload runs its current spec.
    pub(crate) async fn await_running(&self, kind: KubeKind, name: &str) -> Result<Object> {
        self.until(kind, name, START_TIMEOUT, "is Running and Ready", crate::object::ObjectExt::is_running).await
    }

    /// Waits until the workload runs with another configuration than before.
    pub(crate) async fn await_reconfigured(&self, kind: KubeKind, before: &Object) -> Result<Object> {
        let (seq, hash) = (before.last_seq(), before.text("/status/contentHash"));
        let renewed = |it: &Object| it.is_running() && it.last_seq() > seq && it.text("/status/contentHash") != hash;
        self.until(kind, &before.name_any(), START_TIMEOUT, "runs with a new configuration", renewed).await
    }

    /// Waits until the agent is in this phase and its condition Ready is False with these words in its reason or message.
    pub(crate) async fn await_agent_not_ready(
        &self,
        agent: &str,
        deadline: Duration,
        phase: &str,
        words: &[&str],
    ) -> Result<Object> {
        self.await_not_ready(AGENT, agent, deadline, phase, words).await
    }

    /// Waits until the object is in this phase and its condition Ready is False with these words in its reason or message.
    pub(crate) async fn await_not_ready(
        &self,
        kind: KubeKind,
        name: &str,
        deadline: Duration,
        phase: &str,
        words: &[&str],
    ) -> Result<Object> {
        let what = format!("is {phase}, its condition Ready says {words:?}");
        let message = |object: &Object| {
            let ready = object.condition("Ready");
            object.phase() == phase && ready.is_false() && words.iter().all(|word| ready.contains(word))
        };
        self.until(kind, name, deadline, &what, message).await
    }

    /// Applies a workload and waits until it runs.
    pub(crate) async fn start(&self, workload: &Value) -> Result<Object> {
        let (kind, name) = target(workload)?;
        self.apply(workload).await?;
        self.await_running(kind, &name).await
    }

    /// Waits for the operator's Event with this reason. An Event is sent after the status change that it reports; a test
    /// that counts requests afterwards must not count this one.
    pub(crate) async fn await_event(&self, name: &str, reason: &str) -> Result<()> {
        let tells = |event: &Object| event.text("/reason") == reason && event.text("/involvedObject/name") == name;
        let what = format!("the Event {reason} of {name}");
        self.until_all(EVENT, REPORT_TIMEOUT, &what, |events| events.values().any(tells)).await.map(drop)
    }

    /// Applies an object that others refer to and waits until it is Available.
    pub(crate) async fn provide(&self, reference: &Value) -> Result<Object> {
        let (kind, name) = target(reference)?;
        self.apply(reference).await?;
        self.until(kind, &name, REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available" && it.is_current()).await
    }

    /// Starts to record the changes of one object.
    pub(crate) async fn record(&self, kind: KubeKind, name: &str) -> Result<Recorder> {
        Recorder::start(self.api(kind), name).await
    }

    /// Checks for this time that our objects and the Deployments do not change.
    pub(crate) async fn stays_the_same(&self, window: Duration) -> Result<()> {
        stays_the_same(OURS.into_iter().chain([DEPLOYMENT]).map(|kind| (kind, self.api(kind))).collect(), window).await
    }

    /// Returns the workload's Pods, terminating ones included.
    async fn pods_of(&self, workload: &str) -> Result<Vec<Object>> {
        let mut pods = self.list(POD).await?;
        pods.retain(|pod| pod.labels().get("app.kubernetes.io/name").is_some_and(|label| label == workload));
        Ok(pods)
    }

    /// Returns the uids of the workload's Pods that are not being deleted, sorted.
    pub(crate) async fn pod_uids(&self, workload: &str) -> Result<Vec<String>> {
        let mut pods = self.pods_of(workload).await?;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        let mut uids: Vec<String> = pods.iter().map(crate::object::ObjectExt::id).collect();
        uids.sort();
        Ok(uids)
    }

    /// Waits until the workload has no Pod, terminating ones included.
    pub(crate) async fn await_no_pod(&self, workload: &str) -> Result<()> {
        let what = format!("the end of {workload}'s last Pod");
        poll(START_TIMEOUT, &what, || async { Ok(self.pods_of(workload).await?.is_empty().then_some(())) }).await
    }

    /// Returns a mark in the audit log after the Events of all workloads that are Running: the operator sends them
    /// asynchronously to the reconcile.
    pub(crate) async fn mark(&self) -> Result<AuditMark> {
        let mut running = Vec::new();
        for kind in WORKLOADS {
            running.extend(self.list(kind).await?.into_iter().filter(|it| it.phase() == "Running"));
        }
        for workload in running {
            let name = workload.name_any();
            let reported = |event: &Object| {
                event.text("/involvedObject/name") == name && matches!(event.text("/reason"), "Running" | "Recovered")
            };
            poll(REPORT_TIMEOUT, "the Event that the workload runs", || async {
                Ok(self.list(EVENT).await?.iter().any(reported).then_some(()))
            })
            .await?;
        }
        self.env.audit.mark().await
    }

    /// Returns the operator's requests in this namespace since the mark, without upkeep.
    pub(crate) async fn operator_requests(&self, since: AuditMark) -> Result<Vec<AuditEvent>> {
        let mut requests = self.env.audit.requests_by_operator(since, Some(&self.name)).await?;
        requests.retain(|request| !request.is_upkeep());
        Ok(requests)
    }
}

/// Returns kind and name of a manifest.
fn target(manifest: &Value) -> Result<(KubeKind, String)> {
    let kind = KubeKind::of(manifest).with_context(|| format!("unknown kind {}", manifest["kind"]))?;
    let name = manifest["metadata"]["name"].as_str().context("a manifest without a name")?;
    Ok((kind, name.into()))
}
