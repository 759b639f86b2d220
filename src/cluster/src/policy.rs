//! Reduces the NetworkPolicies of other owners to the Pods they isolate: a policy of ours beside one would admit traffic it keeps out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use serde::Deserialize;

/// Decodes the selector of the Pods that a NetworkPolicy isolates. `None`: it isolates none, because it only restricts what Pods may send,
/// or because it is one of ours that lost its label.
///
/// # Errors
/// Fails if the JSON is no NetworkPolicy.
pub fn ingress_selector(json: &str) -> Result<Option<LabelSelector>, serde_json::Error> {
    #[derive(Deserialize)]
    struct WireNetworkPolicy {
        metadata: WirePolicyMeta,
        spec: WirePolicySpec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WirePolicyMeta {
        #[serde(default)]
        owner_references: Vec<OwnerReference>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WirePolicySpec {
        #[serde(default)]
        pod_selector: LabelSelector,
        #[serde(default)]
        policy_types: Vec<String>,
    }
    let WireNetworkPolicy { metadata, spec: WirePolicySpec { pod_selector, policy_types } } =
        serde_json::from_str(json)?;
    let of_ours = |owner: &OwnerReference| {
        owner.controller == Some(true) && owner.api_version.split('/').next() == Some(crds::GROUP)
    };
    if metadata.owner_references.iter().any(of_ours) {
        return Ok(None);
    }
    // Without policyTypes the policy is one of Ingress.
    let isolates = policy_types.is_empty() || policy_types.iter().any(|type_| type_ == "Ingress");
    Ok(isolates.then_some(pod_selector))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_policy_isolates_pods_unless_it_is_of_egress_or_ours() {
        let policy = |metadata: Value, spec: Value| {
            ingress_selector(&json!({ "metadata": metadata, "spec": spec }).to_string()).unwrap().is_some()
        };
        let owner = |api_version: &str, controller: bool| {
            json!({ "ownerReferences": [{ "apiVersion": api_version, "kind": "Agent", "name": "a", "uid": "u",
                "controller": controller }] })
        };
        let all = json!({ "podSelector": {} });
        for (metadata, spec, isolates) in [
            (json!({}), all.clone(), true),
            (json!({}), json!({ "podSelector": {}, "policyTypes": ["Egress", "Ingress"] }), true),
            (json!({}), json!({ "podSelector": {}, "policyTypes": ["Egress"] }), false),
            (owner("agents.recif.dev/v1", true), all.clone(), false),
            (owner("agents.recif.dev/v1", false), all.clone(), true),
            (owner("example.com/v1", true), all, true),
        ] {
            assert_eq!(policy(metadata.clone(), spec.clone()), isolates, "{metadata} {spec}");
        }
    }
}
