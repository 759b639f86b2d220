//! Renders the NetworkPolicy of a workload. With a sidecar it closes the port of the image itself, so that no request bypasses the
//! sidecar; with `egress` in the spec it restricts what the Pods connect to.
//!
//! Policies only ever allow, and all policies that select a Pod add up. So everything but that one port is allowed from
//! everywhere: meshes, metrics and containers of the overlay keep working. For the same reason there is no policy if another one
//! selects the Pods: the operator's would allow all that the other one denies. The egress part allows only what the spec lists,
//! so it stays beside policies of others, under a name of its own.

use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::labels::{child, selector_labels};
use crate::ports::{ChildKind, ChildManifest};

/// Highest port number.
const MAX_PORT: i32 = 65535;

/// Returns the name of a workload's policy. A user's own policy often has the name of the workload.
pub fn network_policy_name(workload: &str) -> String {
    format!("{workload}-sidecar")
}

/// Returns the name of a workload's policy that restricts only what its Pods send.
pub fn egress_policy_name(workload: &str) -> String {
    format!("{workload}-egress")
}

/// Returns the policy of `workload` with these egress rules added; without `ingress` it has them alone.
pub fn with_egress(mut policy: ChildManifest, workload: &str, ingress: bool, rules: Vec<Value>) -> ChildManifest {
    let spec = &mut policy.body["spec"];
    spec["egress"] = Value::Array(rules);
    if ingress {
        spec["policyTypes"] = json!(["Ingress", "Egress"]);
        return policy;
    }
    spec["policyTypes"] = json!(["Egress"]);
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("ingress");
    }
    let name = egress_policy_name(workload);
    policy.body["metadata"]["name"] = json!(name);
    policy.child.name = name;
    policy
}

/// Returns the policy of `owner`, whose kind is named by the label `label` and whose container listens on `port`.
pub fn network_policy<K: Resource<DynamicType = ()>>(owner: &K, label: &str, port: i32) -> ChildManifest {
    let workload = owner.name_any();
    let range =
        |first: i32, last: i32| (first <= last).then(|| json!({ "protocol": "TCP", "port": first, "endPort": last }));
    let around = [range(1, port - 1), range(port + 1, MAX_PORT)].into_iter().flatten();
    let others = ["UDP", "SCTP"].into_iter().map(|protocol| json!({ "protocol": protocol }));
    let ports: Vec<Value> = around.chain(others).collect();
    let spec = json!({
        "podSelector": { "matchLabels": selector_labels(label, &workload) },
        "policyTypes": ["Ingress"],
        "ingress": [{ "ports": ports }],
    });
    child(owner, label, ChildKind::NetworkPolicy, network_policy_name(&workload), json!({ "spec": spec }))
}

#[cfg(test)]
mod tests {
    use crds::Agent;

    use super::*;

    /// Reports whether a policy admits a connection to this port, by the definition of the API (networking.k8s.io/v1).
    fn admits(spec: &Value, protocol: &str, port: i32) -> bool {
        let rules = spec["ingress"].as_array().unwrap().iter();
        let mut ports = rules.flat_map(|rule| {
            assert!(rule.get("from").is_none(), "from everywhere");
            rule["ports"].as_array().unwrap()
        });
        ports.any(|rule| {
            let first = rule["port"].as_i64();
            let last = rule["endPort"].as_i64().or(first);
            rule["protocol"] == protocol
                && first.is_none_or(|first| first <= port.into())
                && last.is_none_or(|last| i64::from(port) <= last)
        })
    }

    #[test]
    fn only_the_port_of_the_image_is_closed() {
        let agent: Agent = serde_json::from_value(json!({
            "apiVersion": "agents.recif.dev/v1", "kind": "Agent",
            "metadata": { "name": "a", "namespace": "ns", "uid": "u" }, "spec": { "name": "A", "framework": "corail" },
        }))
        .unwrap();
        for own in [1, 2, 8000, 8887, 8889, 65534, 65535] {
            let manifest = network_policy(&agent, "recif.dev/agent", own);
            let spec = &manifest.body["spec"];
            for port in [1, 2, 3, 80, 4143, 7999, 8000, 8001, 8080, 8887, 8888, 8889, 9090, 15090, 65534, 65535] {
                assert_eq!(admits(spec, "TCP", port), port != own, "TCP {port} of an image that listens on {own}");
                assert!(admits(spec, "UDP", port) && admits(spec, "SCTP", port), "{port}");
            }
            for rule in spec["ingress"][0]["ports"].as_array().unwrap() {
                let (first, last) = (rule["port"].as_i64(), rule["endPort"].as_i64());
                assert!(first <= last && first != Some(0) && last <= Some(65535), "the API server takes it: {rule}");
            }
            assert_eq!(spec["podSelector"]["matchLabels"]["recif.dev/agent"], "a");
            assert_eq!(spec["policyTypes"], json!(["Ingress"]), "what Pods send is not concerned");
        }
    }

    #[test]
    fn the_egress_part_is_added_or_stands_alone() {
        let agent: Agent = serde_json::from_value(json!({
            "apiVersion": "agents.recif.dev/v1", "kind": "Agent",
            "metadata": { "name": "a", "namespace": "ns", "uid": "u" }, "spec": { "name": "A", "framework": "corail" },
        }))
        .unwrap();
        let plain = network_policy(&agent, "recif.dev/agent", 8000);
        let both = with_egress(plain.clone(), "a", true, vec![json!({ "ports": [] })]);
        assert_eq!(both.child, plain.child);
        assert_eq!(both.body["spec"]["ingress"], plain.body["spec"]["ingress"]);
        assert_eq!(both.body["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        let alone = with_egress(plain, "a", false, vec![json!({ "ports": [] })]);
        assert_eq!((alone.child.name.as_str(), &alone.body["metadata"]["name"]), ("a-egress", &json!("a-egress")));
        let (selector, rules) = (&both.body["spec"]["podSelector"], json!([{ "ports": [] }]));
        let expected = json!({ "podSelector": selector, "policyTypes": ["Egress"], "egress": rules });
        assert_eq!(alone.body["spec"], expected);
    }
}
