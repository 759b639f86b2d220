//! Writes of the scaler: `replicas` of a Deployment, and the deletion cost of a Pod.

use std::{fmt, sync::Arc};

use actions::{
    ports::{CachedChild, ChildKind, ChildRef, WorkloadPod},
    workload::SCALER,
};
use http::Method;
use machine::ApiError;
use serde_json::json;

use super::{
    child_requests::{APPLY, read},
    error::ApiOperation,
    resource::{RequestTarget, Resource},
    store::{ChangeSource, ObjectMap},
    transport::{ApiRequest, RequestInfo, Transport, api_request},
};

const MERGE: Option<&str> = Some("application/merge-patch+json");
/// Annotation with the [deletion cost](https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost): of Pods
/// that are ready, a Deployment deletes those with the lower cost first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Client for Deployments and Pods, as the scaler's field manager.
pub struct ScaleWriter {
    transport: Arc<Transport>,
    deployments: Arc<ObjectMap<CachedChild>>,
}

impl fmt::Debug for ScaleWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScaleWriter").finish_non_exhaustive()
    }
}

impl ScaleWriter {
    /// Creates a client that writes through `transport` and puts the responses into `deployments`.
    pub fn new(transport: Arc<Transport>, deployments: Arc<ObjectMap<CachedChild>>) -> Self {
        Self { transport, deployments }
    }

    /// Applies `replicas`, or (`None`) gives it up: another field manager that has applied it keeps it. Bound to the uid.
    ///
    /// # Errors
    /// The failure of the request, classified.
    pub async fn set_replicas(&self, deployment: &CachedChild, replicas: Option<i32>) -> Result<(), ApiError> {
        let (namespace, name) = (&deployment.child.namespace, &deployment.child.name);
        let request = replicas_request(&deployment.child, &deployment.uid, replicas, SCALER);
        let call = RequestInfo { verb: "scale", kind: "Deployment", object: format!("{namespace}/{name}") };
        let take = |body: &[u8]| {
            self.deployments.observe(read(ChildKind::Deployment, body)?, ChangeSource::Write);
            Ok(())
        };
        self.transport.write(&call, ApiOperation::Apply, request, take).await
    }

    /// Sets the deletion cost of a Pod, or (`None`) removes it. Bound to the uid. The response is not cached: the cost counts once a watch
    /// has shown it, because the Deployment's controller has nothing but its own watch.
    ///
    /// # Errors
    /// The failure of the request, classified.
    pub async fn set_deletion_cost(
        &self,
        namespace: &str,
        pod: &WorkloadPod,
        cost: Option<i32>,
    ) -> Result<(), ApiError> {
        let cost = cost.map(|cost| cost.to_string());
        let body = json!({ "metadata": { "uid": pod.uid, "annotations": { DELETION_COST: cost } } });
        let target =
            RequestTarget::new(Resource::POD.object(namespace, &pod.name)).with("fieldManager", SCALER).into_string();
        let request = api_request(Method::PATCH, target, MERGE, body.to_string().into_bytes());
        let call = RequestInfo { verb: "mark", kind: "Pod", object: format!("{namespace}/{}", pod.name) };
        match self.transport.write(&call, ApiOperation::Apply, request, |_| Ok(())).await {
            // The Pod is gone already.
            Err(ApiError::NotFound | ApiError::WrongUid(_)) => Ok(()),
            other => other,
        }
    }
}

/// Builds a server-side apply of `replicas` of a Deployment and nothing else, or (`None`) of nothing, as this field manager. Bound to the
/// uid.
pub(super) fn replicas_request(deployment: &ChildRef, uid: &str, replicas: Option<i32>, manager: &str) -> ApiRequest {
    let ChildRef { namespace, name, .. } = deployment;
    let mut body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": namespace, "uid": uid },
    });
    if let Some(replicas) = replicas {
        body["spec"] = json!({ "replicas": replicas });
    }
    let path = Resource::child(ChildKind::Deployment).object(namespace, name);
    let target = RequestTarget::new(path).with("fieldManager", manager).with("force", "true").into_string();
    api_request(Method::PATCH, target, APPLY, body.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use meta::Key;

    use super::*;
    use crate::testing::{response, scripted};

    fn stored(version: u64) -> String {
        let entry = json!({"manager": SCALER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let metadata = json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string(),
            "managedFields": [entry]});
        json!({"metadata": metadata, "spec": {"replicas": 3}}).to_string()
    }

    #[tokio::test]
    async fn replicas_are_applied_under_the_scalers_name_and_known_at_once() {
        let (transport, mut asked) = scripted(vec![response(200, stored(7)), response(200, stored(8))]);
        let map = Arc::new(ObjectMap::default());
        let writer = ScaleWriter::new(transport, map.clone());
        let deployment = CachedChild {
            child: ChildRef { kind: ChildKind::Deployment, namespace: "ns".into(), name: "a".into() },
            uid: "u".into(),
            resource_version: 1,
            generation: 1,
            labels: BTreeMap::new(),
            controller: None,
            owned: None,
            deleting: false,
            data: BTreeMap::new(),
            deployment: None,
            definitions: None,
        };
        writer.set_replicas(&deployment, Some(3)).await.unwrap();
        let state = map.get(&Key::new("ns", "a")).unwrap().deployment.clone().unwrap();
        assert!(state.desired == 3 && state.replicas_managers.scaler);
        let request = asked.recv().await.unwrap();
        let target = "/apis/apps/v1/namespaces/ns/deployments/a?fieldManager=recif-scaler&force=true";
        assert_eq!(request.line, format!("PATCH {target}"));
        assert_eq!((&request.body["metadata"]["uid"], &request.body["spec"]), (&json!("u"), &json!({"replicas": 3})));
        writer.set_replicas(&deployment, None).await.unwrap();
        assert_eq!(asked.recv().await.unwrap().body.get("spec"), None);
    }

    #[tokio::test]
    async fn a_mark_is_bound_to_the_uid_and_one_too_late_is_no_error() {
        let gone = response(404, r#"{"message":"not found","code":404}"#.into());
        let (transport, mut asked) = scripted(vec![response(200, "{}".into()), gone]);
        let writer = ScaleWriter::new(transport, Arc::default());
        let pod = WorkloadPod {
            name: "p".into(),
            uid: "p".into(),
            resource_version: 1,
            labels: BTreeMap::new(),
            ready: true,
            terminating: false,
            ip: None,
            port: 8888,
            deletion_cost: None,
            problem: None,
        };
        writer.set_deletion_cost("ns", &pod, Some(-5)).await.unwrap();
        writer.set_deletion_cost("ns", &pod, None).await.unwrap();
        let (mark, back) = (asked.recv().await.unwrap(), asked.recv().await.unwrap());
        assert_eq!(mark.line, "PATCH /api/v1/namespaces/ns/pods/p?fieldManager=recif-scaler");
        assert_eq!(mark.body, json!({"metadata": {"uid": "p", "annotations": {DELETION_COST: "-5"}}}));
        assert_eq!(back.body["metadata"]["annotations"], json!({DELETION_COST: null}));
    }
}
