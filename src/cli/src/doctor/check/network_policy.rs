//! Meaning of NetworkPolicies: which Pods one selects, and which connections several admit together.
//!
//! All policies that select a Pod add up: a connection is shut if one selects the Pod and none of them admits it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::core::{Selector, SelectorExt as _};

/// Label with the name of a namespace, which every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Labels of a Pod.
pub(super) type Labels = BTreeMap<String, String>;

/// Connection that is needed.
pub(super) struct Needed {
    pub(super) what: &'static str,
    pub(super) ingress: bool,
    pub(super) protocol: &'static str,
    pub(super) port: i32,
    pub(super) port_name: &'static str,
    /// Namespace and labels of the other end.
    pub(super) peer: (String, Labels),
}

/// Reports whether the policy names egress as one of its types.
pub(super) fn restricts_egress(policy: &NetworkPolicy) -> bool {
    let types = policy.spec.as_ref().and_then(|spec| spec.policy_types.as_ref());
    types.into_iter().flatten().any(|type_| type_ == "Egress")
}

/// Reports whether the policy selects a Pod of its namespace with these labels.
pub(super) fn selects(policy: &NetworkPolicy, pod: &Labels) -> bool {
    policy.spec.as_ref().is_some_and(|spec| matches(spec.pod_selector.as_ref(), pod))
}

/// Reports whether a selector matches; a missing or empty one matches everything.
fn matches(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return true };
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

/// Reports whether the policies admit a connection to, or from, a Pod.
pub(super) fn admits(policies: &[NetworkPolicy], namespace: &str, pod: &Labels, needed: &Needed) -> bool {
    let direction = if needed.ingress { "Ingress" } else { "Egress" };
    let mut isolated = false;
    for spec in policies.iter().filter(|policy| selects(policy, pod)).filter_map(|policy| policy.spec.as_ref()) {
        // Without policyTypes it is one of ingress, and of egress if it has rules for that.
        let isolates = match &spec.policy_types {
            Some(types) => types.iter().any(|type_| type_ == direction),
            None => needed.ingress || spec.egress.is_some(),
        };
        if !isolates {
            continue;
        }
        isolated = true;
        let rules: Vec<_> = if needed.ingress {
            spec.ingress.iter().flatten().map(|rule| (rule.ports.as_deref(), rule.from.as_deref())).collect()
        } else {
            spec.egress.iter().flatten().map(|rule| (rule.ports.as_deref(), rule.to.as_deref())).collect()
        };
        if rules.iter().any(|(ports, peers)| has_port(*ports, needed) && has_peer(*peers, namespace, needed)) {
            return true;
        }
    }
    !isolated
}

fn has_port(ports: Option<&[NetworkPolicyPort]>, needed: &Needed) -> bool {
    let fits = |port: &NetworkPolicyPort| {
        let number = match &port.port {
            None => true,
            Some(IntOrString::String(name)) => name == needed.port_name,
            Some(IntOrString::Int(first)) => (*first..=port.end_port.unwrap_or(*first)).contains(&needed.port),
        };
        port.protocol.as_deref().unwrap_or("TCP") == needed.protocol && number
    };
    ports.is_none_or(|ports| ports.is_empty() || ports.iter().any(fits))
}

/// Reports whether a rule is for the other end. A range of addresses is assumed to hold it: which they are is not known here.
fn has_peer(peers: Option<&[NetworkPolicyPeer]>, namespace: &str, needed: &Needed) -> bool {
    let (other, labels_) = &needed.peer;
    let fits = |peer: &NetworkPolicyPeer| {
        if peer.ip_block.is_some() {
            return true;
        }
        let there = match &peer.namespace_selector {
            // Only the name of a namespace is known of its labels; others are assumed to fit.
            Some(selector) => by_name(selector).is_none_or(|names| names.iter().any(|name| name == other)),
            None => other == namespace,
        };
        there && matches(peer.pod_selector.as_ref(), labels_)
    };
    peers.is_none_or(|peers| peers.is_empty() || peers.iter().any(fits))
}

/// Returns the names by which a selector chooses namespaces; `None`: it chooses by other labels, or all.
fn by_name(selector: &LabelSelector) -> Option<Vec<String>> {
    if let Some(name) = selector.match_labels.as_ref().and_then(|labels| labels.get(NAMESPACE_NAME)) {
        return Some(vec![name.clone()]);
    }
    let mut expressions = selector.match_expressions.iter().flatten();
    expressions.find(|one| one.key == NAMESPACE_NAME && one.operator == "In").and_then(|one| one.values.clone())
}
