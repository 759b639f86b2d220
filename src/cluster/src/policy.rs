//! Reduces the policies of other owners to the Pods they are about. Beside a NetworkPolicy, one of ours would admit traffic that it keeps
//! out; beside a PodDisruptionBudget, one of ours would keep the Pods from being evicted at all.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use serde::Deserialize;

/// Metadata of a policy.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePolicyMeta {
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

impl WirePolicyMeta {
    /// Reports whether the policy is one of ours, which lost its label.
    fn is_ours(&self) -> bool {
        let of_ours = |owner: &OwnerReference| {
            owner.controller == Some(true) && owner.api_version.split('/').next() == Some(crds::GROUP)
        };
        self.owner_references.iter().any(of_ours)
    }
}

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
    struct WirePolicySpec {
        #[serde(default)]
        pod_selector: LabelSelector,
        #[serde(default)]
        policy_types: Vec<String>,
    }
    let WireNetworkPolicy { metadata, spec: WirePolicySpec { pod_selector, policy_types } } =
        serde_json::from_str(json)?;
    if metadata.is_ours() {
        return Ok(None);
    }
    // Without policyTypes the policy is one of Ingress.
    let isolates = policy_types.is_empty() || policy_types.iter().any(|type_| type_ == "Ingress");
    Ok(isolates.then_some(pod_selector))
}

/// Decodes the selector of the Pods of a PodDisruptionBudget (`policy/v1`, where an empty selector selects all Pods of the namespace, and a
/// missing one none). `None`: it selects none, or it is one of ours that lost its label.
///
/// # Errors
/// Fails if the JSON is no PodDisruptionBudget.
pub fn budget_selector(json: &str) -> Result<Option<LabelSelector>, serde_json::Error> {
    #[derive(Deserialize)]
    struct WireBudget {
        metadata: WirePolicyMeta,
        #[serde(default)]
        spec: WireBudgetSpec,
    }
    #[derive(Deserialize, Default)]
    struct WireBudgetSpec {
        #[serde(default)]
        selector: Option<LabelSelector>,
    }
    let WireBudget { metadata, spec } = serde_json::from_str(json)?;
    Ok(spec.selector.filter(|_| !metadata.is_ours()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn owner(api_version: &str, controller: bool) -> Value {
        json!({ "ownerReferences": [{ "apiVersion": api_version, "kind": "Agent", "name": "a", "uid": "u",
            "controller": controller }] })
    }

    #[test]
    fn a_policy_isolates_pods_unless_it_is_of_egress_or_ours() {
        let policy = |metadata: Value, spec: Value| {
            ingress_selector(&json!({ "metadata": metadata, "spec": spec }).to_string()).unwrap().is_some()
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

    #[test]
    fn a_budget_holds_pods_unless_it_has_no_selector_or_is_ours() {
        let budget = |metadata: Value, spec: Value| {
            let selector = budget_selector(&json!({ "metadata": metadata, "spec": spec }).to_string()).unwrap();
            selector.map(|selector| selector.match_labels.unwrap_or_default().into_keys().collect::<Vec<_>>())
        };
        let of_app = json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "a" } } });
        assert_eq!(budget(json!({}), of_app.clone()), Some(vec!["app".to_owned()]));
        assert_eq!(budget(json!({}), json!({ "selector": {} })), Some(Vec::new()), "all Pods of the namespace");
        assert_eq!(budget(json!({}), json!({ "minAvailable": "50%" })), None);
        assert_eq!(budget(owner("agents.recif.dev/v1", true), of_app.clone()), None);
        assert_eq!(budget(owner("example.com/v1", true), of_app), Some(vec!["app".to_owned()]));
    }
}
