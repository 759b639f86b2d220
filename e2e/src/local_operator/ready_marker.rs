//! Marks each Deployment of the operator as ready, as the Deployment controller would after the start of its Pods.

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

/// Limit of concurrent patches.
const AT_ONCE: usize = 8;
/// Timestamp of all conditions: the time has no meaning here, and a constant makes a repeated patch a no-op.
const WHEN: &str = "2026-01-01T00:00:00Z";

/// Marks Deployments without end.
pub async fn run(client: Client) {
    let all: Api<Deployment> = Api::all(client.clone());
    let ours = watcher::Config::default().labels("app.kubernetes.io/managed-by=recif-operator");
    let changed = watcher(all, ours).default_backoff().applied_objects();
    changed
        .for_each_concurrent(AT_ONCE, |deployment| async {
            if let Ok(deployment) = deployment
                && let Some(status) = missing_status(&deployment)
            {
                mark(&client, &deployment, status).await;
            }
        })
        .await;
}

async fn mark(client: &Client, deployment: &Deployment, status: Value) {
    let namespace = deployment.namespace().unwrap_or_default();
    let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let patch = Patch::Merge(json!({"status": status}));
    match api.patch_status(&deployment.name_any(), &PatchParams::default(), &patch).await {
        // The Deployment was deleted meanwhile.
        Ok(_) | Err(kube::Error::Api(_)) => {}
        Err(error) => eprintln!("Deployment {namespace}/{} is not marked ready: {error}", deployment.name_any()),
    }
}

/// Returns the status that a Deployment should have, or `None` if it has it or is being deleted.
fn missing_status(deployment: &Deployment) -> Option<Value> {
    let generation = deployment.metadata.generation;
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let current = deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == generation && status.available_replicas.unwrap_or_default() == replicas
    });
    if current || deployment.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let condition = |type_: &str, reason: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": "said in the place of a node",
            "lastTransitionTime": WHEN, "lastUpdateTime": WHEN,
        })
    };
    Some(json!({
        "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "NewReplicaSetAvailable"),
        ],
    }))
}
