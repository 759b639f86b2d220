//! Operator as deployed in the cluster: its Pods, its lease, its logs.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, LogParams, Patch, PatchParams},
    runtime::watcher::Config,
};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    env::Env,
    environment,
    kinds::{DEPLOYMENT, LEASE, POD},
    object::{Object, ObjectExt as _, ObjectsByName},
    watch::await_condition,
};

/// Namespace of the operator.
pub(crate) const NAMESPACE: &str = "recif-system";
/// Name of its Deployment.
pub(crate) const NAME: &str = "recif-operator";

/// Returns its Pods that are not being deleted.
pub(crate) async fn pods(env: &Env) -> Result<Vec<Object>> {
    let pods = env.within(NAMESPACE, POD).list(&Default::default()).await.context("list the operator's Pods")?;
    Ok(pods.items.into_iter().filter(is_ours).filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
}

fn is_ours(pod: &Object) -> bool {
    pod.name_any().starts_with(NAME)
}

/// Kills a Pod at once by SIGKILL, as a crash of its node would. A deletion, even with a grace period of 0, sends SIGTERM
/// and leaves two seconds, in which the operator releases the lease.
pub(crate) async fn kill(env: &Env, pod: &str) -> Result<()> {
    environment::signal(pod, Signal::KILL).await?;
    let now = DeleteParams::default().grace_period(0);
    match env.within(NAMESPACE, POD).delete(pod, &now).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop).with_context(|| format!("delete Pod {pod}")),
    }
}

/// Waits until the Deployment has exactly this many Pods, all ready.
pub(crate) async fn ready(env: &Env, replicas: i64) -> Result<()> {
    let has = |objects: &ObjectsByName| {
        let deployment = objects.get(NAME)?;
        let status = |field: &str| deployment.number(&format!("/status/{field}"));
        (status("observedGeneration") == deployment.generation()
            && ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
                .iter()
                .all(|it| status(it) == replicas))
        .then_some(())
    };
    let what = format!("{replicas} ready Pods of the operator");
    await_condition(env.within(NAMESPACE, DEPLOYMENT), Config::default(), Duration::from_secs(90), &what, has).await
}

/// Returns the number of replicas in the spec of its Deployment.
pub(crate) async fn replicas(env: &Env) -> Result<i64> {
    let deployment = env.within(NAMESPACE, DEPLOYMENT).get(NAME).await.context("get the operator's Deployment")?;
    Ok(deployment.number("/spec/replicas"))
}

/// Returns the image of its Deployment.
pub(crate) async fn image(env: &Env) -> Result<String> {
    let deployment = env.within(NAMESPACE, DEPLOYMENT).get(NAME).await.context("get the operator's Deployment")?;
    Ok(deployment.text("/spec/template/spec/containers/0/image").to_owned())
}

/// Scales the Deployment and waits until it is ready.
pub(crate) async fn scale(env: &Env, replicas: i64) -> Result<()> {
    let patch = json!({"spec": {"replicas": replicas}});
    let api = env.within(NAMESPACE, DEPLOYMENT);
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.context("scale the operator")?;
    ready(env, replicas).await
}

/// Returns the holder of its lease: the uid of a Pod.
pub(crate) async fn leader(env: &Env) -> Result<String> {
    await_leader(env, Duration::from_secs(30), "a holder of the operator's lease", |holder| !holder.is_empty()).await
}

/// Waits for a holder of the lease that `accept` accepts.
pub(crate) async fn await_leader(
    env: &Env,
    deadline: Duration,
    what: &str,
    accept: impl Fn(&str) -> bool,
) -> Result<String> {
    let held = |leases: &ObjectsByName| {
        let (_, lease) = leases.iter().find(|(name, _)| name.starts_with("recif"))?;
        let holder = lease.text("/spec/holderIdentity");
        accept(holder).then(|| holder.to_owned())
    };
    await_condition(env.within(NAMESPACE, LEASE), Config::default(), deadline, what, held).await
}

/// Returns the available logs of its Pods, including those of the previous containers.
pub(crate) async fn logs(env: &Env) -> Result<String> {
    let api: Api<Pod> = Api::namespaced(env.client.clone(), NAMESPACE);
    let mut all = String::new();
    for pod in pods(env).await? {
        for previous in [true, false] {
            let which = LogParams { previous, ..LogParams::default() };
            all += &api.logs(&pod.name_any(), &which).await.unwrap_or_default();
        }
    }
    Ok(all)
}
