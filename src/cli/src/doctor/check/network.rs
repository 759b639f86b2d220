//! Row 12: NetworkPolicies of others that shut a port which is needed: the sidecar's, the gateway's admin port, DNS. And whether the
//! cluster's network enforces policies at all, without which `egress` of agents restricts nothing but the runtime.
//!
//! Policies of ours count for what is shut, and are not reported.

use crds::{MANAGED_BY, PROXY_PORT};
use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{
    super::{
        finding::{Finding, Issue},
        reading::{Read, Scope},
    },
    network_policy::{Labels, Needed, admits, restricts_egress, selects},
};

const CHECK: &str = "network-policies";
const TITLE: &str = "network policies";
const NAME: &str = "app.kubernetes.io/name";
/// Admin port of the gateway.
const ADMIN_PORT: i32 = 8081;
const DNS_PORT: i32 = 53;

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
