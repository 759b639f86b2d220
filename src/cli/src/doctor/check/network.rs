//! Row 12: NetworkPolicies of others that shut a port which is needed: the sidecar's, the gateway's admin port, DNS. And whether the
//! cluster's network enforces policies at all, without which `egress` of agents restricts nothing but the runtime.
//!
//! All policies that select a Pod add up: a connection is shut if one selects the Pod and none of them admits it. Policies of ours
//! count for that, and are not reported.

use std::collections::BTreeMap;

use crds::{MANAGED_BY, PROXY_PORT};
use k8s_openapi::{
    api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::core::{Selector, SelectorExt as _};

use super::super::{
    finding::{Finding, Issue},
    reading::{Read, Scope},
};

const CHECK: &str = "network-policies";
const TITLE: &str = "network policies";
const NAME: &str = "app.kubernetes.io/name";
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Admin port of the gateway.
const ADMIN_PORT: i32 = 8081;
const DNS_PORT: i32 = 53;

type Labels = BTreeMap<String, String>;

/// Connection that is needed.
struct Needed {
    what: &'static str,
    ingress: bool,
    protocol: &'static str,
    port: i32,
    port_name: &'static str,
    /// Namespace and labels of the other end.
    peer: (String, Labels),
}

/// Judges the policies in the namespaces of the agent and of the system.
pub(super) fn check(
    policies: &Read<[Vec<NetworkPolicy>; 2]>,
    pods: &[Labels],
    scope: &Scope,
    plugin: &Read<Option<String>>,
) -> Finding {
    let [here, system] = match policies {
        Ok(policies) => policies,
        Err(why) => return Finding::skip(CHECK, TITLE, why),
    };
    let gateway = || (scope.system.clone(), labels(&[(NAME, "recif-gateway")]));
    let operator = || (scope.system.clone(), labels(&[(NAME, "recif-operator")]));
    let dns = || ("kube-system".to_owned(), labels(&[("k8s-app", "kube-dns")]));
    let into = |what, port, port_name, peer| Needed { what, ingress: true, protocol: "TCP", port, port_name, peer };
    let resolve =
        || Needed { what: "DNS", ingress: false, protocol: "UDP", port: DNS_PORT, port_name: "dns", peer: dns() };
    let sidecar = into("the sidecar's port from the gateway", PROXY_PORT, "http", gateway());
    let asked = into("the sidecar's port from the operator", PROXY_PORT, "http", operator());
    let admin = into("the gateway's admin port from the operator", ADMIN_PORT, "admin", operator());
    let mut issues = judge(here, &scope.namespace, pods, &[sidecar, asked, resolve()]);
    issues.extend(judge(system, &scope.system, &[gateway().1], &[admin, resolve()]));
    issues.extend(judge(system, &scope.system, &[operator().1], &[resolve()]));
    issues.dedup();
    let enforced = match plugin {
        Ok(Some(plugin)) => format!("{plugin} enforces policies"),
        Ok(None) => {
            issues.extend(here.iter().find(|policy| is_ours(policy) && restricts_egress(policy)).map(unenforced));
            "no network plugin is known here that enforces policies".to_owned()
        }
        Err(why) => format!("whether the network enforces policies is not known: {why}"),
    };
    Finding::judge(
        CHECK,
        TITLE,
        format!("none of others concerns us in {} and {}; {enforced}", scope.namespace, scope.system),
        issues,
    )
}

fn restricts_egress(policy: &NetworkPolicy) -> bool {
    let types = policy.spec.as_ref().and_then(|spec| spec.policy_types.as_ref());
    types.into_iter().flatten().any(|type_| type_ == "Egress")
}

/// Returns the warning about a policy of a workload with `egress` that nothing is known to enforce.
fn unenforced(policy: &NetworkPolicy) -> Issue {
    Issue::warn(
        format!("{:?} restricts egress, and no network plugin is known here that enforces policies", name(policy)),
        "install one, such as Calico or Cilium: without it only the runtime holds to egress, and its cli tools do not",
    )
}

fn judge(policies: &[NetworkPolicy], namespace: &str, pods: &[Labels], needed: &[Needed]) -> Vec<Issue> {
    let foreign = |pod: &Labels| policies.iter().find(|policy| !is_ours(policy) && selects(policy, pod)).map(name);
    let Some((pod, policy)) = pods.iter().find_map(|pod| foreign(pod).map(|policy| (pod, policy))) else {
        return Vec::new();
    };
    let shut: Vec<_> = needed
        .iter()
        .filter(|needed| pods.iter().any(|pod| !admits(policies, namespace, pod, needed)))
        .map(|needed| needed.what)
        .collect();
    if shut.is_empty() {
        let who = pod.get(NAME).map_or("our Pods", String::as_str);
        let what = format!("{policy:?} in {namespace} selects {who}");
        return vec![Issue::warn(what, "nothing, as long as it admits what your agents call")];
    }
    let what = format!("{policy:?} in {namespace} shuts {}", shut.join(", "));
    vec![Issue::fail(what, "admit it there, as in config/samples/network-policy.yaml")]
}

fn name(policy: &NetworkPolicy) -> String {
    policy.metadata.name.clone().unwrap_or_default()
}

/// Reports whether the policy is one of the operator, or of config/.
fn is_ours(policy: &NetworkPolicy) -> bool {
    let has = |label: &str, value: &str| {
        policy.metadata.labels.iter().flatten().any(|(key, held)| key == label && held == value)
    };
    has("app.kubernetes.io/managed-by", MANAGED_BY) || has("app.kubernetes.io/part-of", "recif")
}

fn selects(policy: &NetworkPolicy, pod: &Labels) -> bool {
    policy.spec.as_ref().is_some_and(|spec| matches(spec.pod_selector.as_ref(), pod))
}

/// Reports whether a selector matches; a missing or empty one matches everything.
fn matches(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return true };
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

/// Reports whether the policies admit a connection to, or from, a Pod.
fn admits(policies: &[NetworkPolicy], namespace: &str, pod: &Labels, needed: &Needed) -> bool {
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

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::{
        finding::Verdict,
        reading::{Unread, sample_labels},
    };

    fn policy(spec: Value) -> NetworkPolicy {
        serde_json::from_value(json!({ "metadata": { "name": "theirs" }, "spec": spec })).unwrap()
    }

    fn judged(here: Vec<NetworkPolicy>, system: Vec<NetworkPolicy>) -> Finding {
        let scope = Scope {
            namespace: "team-a".into(),
            system: "recif-system".into(),
            pull: false,
            timeout: Duration::from_secs(1),
        };
        check(&Ok([here, system]), &[sample_labels()], &scope, &Ok(Some("Calico".into())))
    }

    fn rules() -> Value {
        let system = json!({ "matchLabels": { "kubernetes.io/metadata.name": "recif-system" } });
        json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{ "from": [{ "namespaceSelector": system }], "ports": [{ "port": 8888 }] }],
            "egress": [{ "ports": [{ "port": 53, "protocol": "UDP" }] }] })
    }

    #[test]
    fn a_policy_that_shuts_what_is_needed_fails() {
        let changed = |pointer: &str, value: Value| {
            let mut rules = rules();
            *rules.pointer_mut(pointer).unwrap() = value;
            vec![policy(rules)]
        };
        for (here, verdict, text) in [
            (vec![], Verdict::Ok, "none of others concerns us"),
            (vec![policy(json!({ "podSelector": { "matchLabels": { "app": "other" } } }))], Verdict::Ok, "none"),
            (vec![policy(rules())], Verdict::Warn, "\"theirs\" in team-a selects my-agent: "),
            (vec![policy(json!({ "podSelector": {} }))], Verdict::Fail, "shuts the sidecar's port from the gateway"),
            (
                vec![policy(json!({ "podSelector": {}, "policyTypes": ["Egress"] }))],
                Verdict::Fail,
                "shuts DNS: admit it",
            ),
            (changed("/ingress/0/ports/0/port", json!(80)), Verdict::Fail, "sidecar's port"),
            (changed("/ingress/0/ports/0/port", json!("http")), Verdict::Warn, "selects"),
            (changed("/egress/0/ports/0/protocol", json!("TCP")), Verdict::Fail, "DNS"),
            (changed("/ingress/0/from", json!([{ "podSelector": {} }])), Verdict::Fail, "sidecar's port"),
            (changed("/ingress/0/from", json!([{ "ipBlock": { "cidr": "10.0.0.0/8" } }])), Verdict::Warn, "selects"),
            (
                changed(
                    "/ingress/0/from",
                    json!([{ "namespaceSelector": {},
                "podSelector": { "matchLabels": { NAME: "recif-gateway" } } }]),
                ),
                Verdict::Fail,
                "from the operator: admit",
            ),
            (changed("/egress/0", json!({ "to": [{ "namespaceSelector": {} }] })), Verdict::Warn, "selects"),
        ] {
            let found = judged(here, vec![]);
            assert_eq!(found.verdict, verdict, "{}", found.text);
            assert!(found.text.contains(text), "{}", found.text);
        }
    }

    #[test]
    fn policies_add_up_with_those_of_ours() {
        let manifest = include_str!("../../../../../config/gateway/network.yaml");
        let ours: NetworkPolicy = serde_yaml::from_str(manifest).unwrap();
        let all = policy(json!({ "podSelector": {}, "policyTypes": ["Ingress"] }));
        assert_eq!(judged(vec![], vec![ours.clone()]).verdict, Verdict::Ok);
        assert_eq!(judged(vec![], vec![ours, all.clone()]).verdict, Verdict::Warn, "ours admits the operator");
        let found = judged(vec![], vec![all]);
        assert!(found.text.contains("\"theirs\" in recif-system shuts the gateway's admin port"), "{}", found.text);
        let scope = Scope { namespace: "a".into(), system: "b".into(), pull: false, timeout: Duration::from_secs(1) };
        let unread = || Unread::Forbidden("list".into());
        assert_eq!(check(&Err(unread()), &[], &scope, &Err(unread())).verdict, Verdict::Skip);
    }

    #[test]
    fn it_is_said_whether_the_network_enforces_policies() {
        let scope = Scope { namespace: "a".into(), system: "b".into(), pull: false, timeout: Duration::from_secs(1) };
        let both = json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}] });
        let mut ours = policy(both);
        ours.metadata.labels = Some(labels(&[("app.kubernetes.io/managed-by", MANAGED_BY)]));
        let judged = |plugin: Read<Option<String>>| check(&Ok([vec![ours.clone()], vec![]]), &[], &scope, &plugin);
        for (plugin, verdict, text) in [
            (Ok(Some("Cilium".to_owned())), Verdict::Ok, "Cilium enforces policies"),
            (Ok(None), Verdict::Warn, "\"theirs\" restricts egress, and no network plugin is known"),
            (Err(Unread::Forbidden("list daemonsets".into())), Verdict::Ok, "not known: you may not list daemonsets"),
        ] {
            let found = judged(plugin);
            assert_eq!(found.verdict, verdict, "{}", found.text);
            assert!(found.text.contains(text), "{}", found.text);
        }
    }
}
