//! Readings of the workloads whose Pods are refused: by the API server, as their Deployments say, or by the operator, whose
//! `--pod-security` their `podTemplate` violates.

use crds::{ApiKind, GROUP, KINDS, Role, VERSION, reason::INVALID_SPEC};
use meta::condition_type::{READY, REPLICA_FAILURE};
use serde_json::Value;

use super::api::{ApiReader, Read, is_true, items, text};

/// Words of the operator's refusal.
const BEYOND_LEVEL: &str = " violates the Pod Security level ";

/// Workload whose Pods are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct RefusedPods {
    /// Its kind and name, such as `agent/my-agent`.
    pub workload: String,
    /// Words of the API server, or of the operator.
    pub said: String,
}

/// Lists the workloads of the namespace whose Pods are refused.
pub(super) async fn read(api: &ApiReader<'_>, namespace: &str) -> Read<Vec<RefusedPods>> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let ours = "&labelSelector=app.kubernetes.io%2Fmanaged-by%3Drecif-operator";
    let deployments = api.list::<Value>("list deployments", &path, ours).await?.unwrap_or_default();
    let mut found: Vec<RefusedPods> = deployments.iter().filter_map(refused).collect();
    for kind in KINDS.iter().filter(|kind| kind.role == Role::Workload) {
        let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{}", kind.plural);
        // The rows of the CRDs and of the user's rights report a kind that may not be listed.
        let listed = api.list::<Value>(&format!("list {}", kind.plural), &path, "").await;
        let objects = listed.ok().flatten().unwrap_or_default();
        for one in objects.iter().filter_map(|object| refused_by_operator(kind, object)) {
            if !found.iter().any(|known| known.workload == one.workload) {
                found.push(one);
            }
        }
    }
    Ok(found)
}

/// Returns the workload of an object whose `podTemplate` the operator refuses.
fn refused_by_operator(kind: &ApiKind, object: &Value) -> Option<RefusedPods> {
    let ready = items(object, "/status/conditions").find(|condition| condition["type"] == READY)?;
    let message = text(ready, "/message");
    if ready["reason"] != INVALID_SPEC || !message.contains(BEYOND_LEVEL) {
        return None;
    }
    // The remedy of the row follows instead of that of the sentence.
    let said = message.split_once(": change it").map_or(message.as_str(), |(said, _)| said).to_owned();
    let workload = format!("{}/{}", kind.name.to_lowercase(), text(object, "/metadata/name"));
    Some(RefusedPods { workload, said })
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

    #[test]
    fn a_workload_whose_template_goes_beyond_the_level_of_the_operator_is_refused_by_it() {
        let field = "spec.containers[agent].securityContext.privileged".to_owned();
        let beyond = actions::render::RenderError::PodSecurity { field, level: "baseline" };
        let kind = ApiKind::find("FlowSet").unwrap();
        let judged = |reason: &str, message: &str| {
            let ready = json!({ "type": "Ready", "status": "False", "reason": reason, "message": message });
            let object = json!({ "metadata": { "name": "shop" }, "status": { "conditions": [ready] } });
            refused_by_operator(kind, &object)
        };
        let said = "podTemplate: spec.containers[agent].securityContext.privileged violates the Pod Security level \
                    baseline, which the operator enforces";
        let shop = RefusedPods { workload: "flowset/shop".into(), said: said.into() };
        assert_eq!(judged(beyond.reason(), &beyond.to_string()), Some(shop));
        assert_eq!(judged("InvalidSpec", "podTemplate: hostAliases: unknown"), None);
        assert_eq!(judged("Running", &beyond.to_string()), None);
        assert_eq!(refused_by_operator(kind, &json!({ "metadata": { "name": "new" } })), None);
    }
}
