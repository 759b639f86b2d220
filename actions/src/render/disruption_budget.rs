//! Renders the PodDisruptionBudget of a workload of which at least two Pods run at any time: the [eviction
//! API](https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/), through which nodes are drained, takes one of them
//! at a time.
//!
//! `maxUnavailable` holds for any number of Pods and never blocks a drain for ever, as `minAvailable` would for a workload that has
//! exactly that many Pods. Pods that are not ready may always be evicted: they serve nothing, and a drain is not to wait for a
//! workload that is broken.

use kube::{Resource, ResourceExt};
use serde_json::json;

use super::labels::{child, selector_labels};
use crate::ports::{ChildKind, ChildManifest};

/// Returns the name of the budget of this workload. A user's own budget often has the name of the workload.
pub fn disruption_budget_name(workload: &str) -> String {
    format!("{workload}-budget")
}

/// Returns the budget of `owner`, whose kind is named by the label `label`.
pub fn disruption_budget<K: Resource<DynamicType = ()>>(owner: &K, label: &str) -> ChildManifest {
    let workload = owner.name_any();
    let spec = json!({
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": { "matchLabels": selector_labels(label, &workload) },
    });
    child(owner, label, ChildKind::PodDisruptionBudget, disruption_budget_name(&workload), json!({ "spec": spec }))
}
