//! Policies about the Pods of a workload: NetworkPolicy and PodDisruptionBudget, which the operator adds unless another owner has one.

use std::collections::BTreeMap;

use machine::ActionError;
use serde_json::Value;

use super::{
    egress::{self, EgressRestriction},
    kind::{RenderedWorkload, WorkloadKind},
    telemetry,
};
use crate::{
    deps::Deps,
    ports::ChildManifest,
    render::{MCP_SERVER_LABEL, child_labels, with_egress},
};

/// Adds the NetworkPolicy and the PodDisruptionBudget of a workload that is to have them, before its Deployment, so that no Pod is
/// ever without them, what the runtime is to know of the policy, and the
/// variables of OpenTelemetry.
///
/// # Errors
/// [`ActionError::Terminal`]: an entry of `egress` that cannot be read, or the variable of `egress` in the spec.
pub(crate) fn with_policies<K: WorkloadKind>(
    cr: &K,
    deps: &Deps,
    mut rendered: RenderedWorkload,
) -> Result<RenderedWorkload, ActionError> {
    telemetry::add(cr, &mut rendered);
    let restriction = egress::restriction(cr, deps, &rendered)?;
    let mut deployment = rendered.running.pop();
    if let Some(restriction) = &restriction {
        // The program of a server is of others, and reads no variable of ours.
        if let Some(deployment) = deployment.as_mut().filter(|_| K::LABEL != MCP_SERVER_LABEL) {
            egress::set_variable::<K>(deployment, restriction)?;
        }
        rendered.conditions.extend(egress::conditions(restriction, deps.settings.network_policies));
    }
    rendered.running.extend(policy(cr, deps, restriction));
    rendered.running.extend(wants_budget(cr, deps).then(|| cr.disruption_budget()));
    rendered.running.extend(deployment);
    Ok(rendered)
}

/// Returns the NetworkPolicy of the Pods: with the part that closes the port of the image, with the part that restricts what they
/// connect to, with both, or none.
fn policy<K: WorkloadKind>(cr: &K, deps: &Deps, restriction: Option<EgressRestriction>) -> Option<ChildManifest> {
    let ingress = wants_policy(cr, deps);
    match restriction.filter(|_| deps.settings.network_policies) {
        None => ingress.then(|| cr.network_policy()),
        Some(found) => {
            let rules = found.rules.render(&deps.settings);
            Some(with_egress(cr.network_policy(), &cr.key().name, ingress, rules))
        }
    }
}

/// Reports whether the operator is to create a NetworkPolicy that closes the port of the image.
fn wants_policy<K: WorkloadKind>(cr: &K, deps: &Deps) -> bool {
    deps.settings.network_policies && cr.traffic().proxy.enabled && !is_governed(cr, deps)
}

/// Reports whether a NetworkPolicy of another owner selects the Pods: the operator's would allow what that one denies.
pub(super) fn is_governed<K: WorkloadKind>(cr: &K, deps: &Deps) -> bool {
    deps.cache.is_ingress_governed(&cr.key().namespace, &pod_labels(cr))
}

/// Fewest Pods for which there is a budget: the only Pod of a workload may always be evicted.
const FEWEST_PODS_WITH_BUDGET: i32 = 2;

/// Reports whether the operator is to create a PodDisruptionBudget for the Pods.
pub(super) fn wants_budget<K: WorkloadKind>(cr: &K, deps: &Deps) -> bool {
    let fewest = cr.scaling_in_force().map_or(cr.replicas(), |scaling| scaling.min_replicas);
    fewest >= FEWEST_PODS_WITH_BUDGET && !is_disruption_governed(cr, deps)
}

/// Reports whether a PodDisruptionBudget of another owner selects the Pods.
pub(super) fn is_disruption_governed<K: WorkloadKind>(cr: &K, deps: &Deps) -> bool {
    deps.cache.is_disruption_governed(&cr.key().namespace, &pod_labels(cr))
}

/// Returns the labels of the Pods, those of the overlay among them.
pub(super) fn pod_labels<K: WorkloadKind>(cr: &K) -> BTreeMap<String, String> {
    let mut labels = child_labels(K::LABEL, &cr.key().name);
    let own = cr.pod_template().and_then(|overlay| overlay.pointer("/metadata/labels")).and_then(Value::as_object);
    let own = own.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    labels.extend(own);
    labels
}
