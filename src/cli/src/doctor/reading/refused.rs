//! Readings of the workloads whose Pods the API server refuses: what their Deployments say of it.

use meta::condition_type::REPLICA_FAILURE;
use serde_json::Value;

use super::api::{ApiReader, Read, is_true, items, text};

/// Workload whose Pods are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct RefusedPods {
    /// Its kind and name, such as `agent/my-agent`.
    pub workload: String,
    /// The server's words.
    pub said: String,
}

/// Lists the workloads of the namespace whose Pods are refused.
pub(super) async fn read(api: &ApiReader<'_>, namespace: &str) -> Read<Vec<RefusedPods>> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let ours = "&labelSelector=app.kubernetes.io%2Fmanaged-by%3Drecif-operator";
    let deployments = api.list::<Value>("list deployments", &path, ours).await?.unwrap_or_default();
    Ok(deployments.iter().filter_map(refused).collect())
}

/// Returns the workload of a Deployment that may make no Pods.
fn refused(deployment: &Value) -> Option<RefusedPods> {
    if !is_true(deployment, REPLICA_FAILURE) {
        return None;
    }
    let failure = items(deployment, "/status/conditions").find(|condition| condition["type"] == REPLICA_FAILURE)?;
    let owner = items(deployment, "/metadata/ownerReferences").find(|owner| owner["controller"] == true)?;
    let workload = format!("{}/{}", text(owner, "/kind").to_lowercase(), text(owner, "/name"));
    Some(RefusedPods { workload, said: text(failure, "/message") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_that_may_make_no_pods_tells_of_its_workload() {
        let deployment = |type_: &str, status: &str| {
            json!({ "metadata": { "ownerReferences": [{ "kind": "FlowSet", "name": "shop", "controller": true }] },
                "status": { "conditions": [{ "type": type_, "status": status, "message": "quota" }] } })
        };
        let shop = RefusedPods { workload: "flowset/shop".into(), said: "quota".into() };
        assert_eq!(refused(&deployment("ReplicaFailure", "True")), Some(shop));
        assert_eq!(refused(&deployment("ReplicaFailure", "False")), None);
        assert_eq!(refused(&deployment("Available", "True")), None);
    }
}
