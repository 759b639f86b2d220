//! Network plugin of the cluster, if one is known that enforces NetworkPolicies. The API server keeps policies also where nothing
//! enforces them, and tells nobody.

use serde_json::Value;

use super::{
    api::{ApiReader, Read, items, text},
    views::NodeView,
};

/// DaemonSets of plugins that enforce policies of `networking.k8s.io`, and the plugin's name.
const ENFORCING: &[(&str, &str)] = &[
    ("anetd", "GKE Dataplane V2"),
    ("antrea-agent", "Antrea"),
    ("azure-npm", "Azure Network Policy Manager"),
    ("calico-node", "Calico"),
    ("canal", "Canal"),
    ("cilium", "Cilium"),
    ("kube-ovn-cni", "Kube-OVN"),
    ("kube-router", "kube-router"),
    ("ovnkube-node", "OVN-Kubernetes"),
    ("weave-net", "Weave Net"),
];
/// Container of Amazon's plugin that enforces policies, where its argument says so.
const AMAZON: (&str, &str, &str) = ("aws-node", "aws-eks-nodeagent", "--enable-network-policy=true");

/// Returns the name of the plugin; `None`: none is known.
pub(super) async fn read(api: &ApiReader<'_>, nodes: &Read<Vec<NodeView>>) -> Read<Option<String>> {
    // k3s has its enforcement in the process of the node.
    if nodes.as_ref().is_ok_and(|nodes| nodes.iter().any(|node| node.kubelet.contains("+k3s"))) {
        return Ok(Some("k3s".to_owned()));
    }
    let sets = api.list::<Value>("list daemonsets", "/apis/apps/v1/daemonsets", "").await?.unwrap_or_default();
    Ok(sets.iter().find_map(enforcing).map(str::to_owned))
}

/// Returns the plugin of a DaemonSet, if it enforces policies.
fn enforcing(set: &Value) -> Option<&'static str> {
    let name = text(set, "/metadata/name");
    if name == AMAZON.0 {
        let mut containers = items(set, "/spec/template/spec/containers");
        let agent = containers.find(|container| container["name"] == AMAZON.1)?;
        return items(agent, "/args").any(|argument| argument == AMAZON.2).then_some("the Amazon VPC CNI");
    }
    ENFORCING.iter().find(|(known, _)| *known == name).map(|(_, plugin)| *plugin)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plugin_is_known_by_its_daemon_set() {
        let amazon = |argument: &str| {
            let containers = json!([{ "name": "aws-node" }, { "name": "aws-eks-nodeagent", "args": [argument] }]);
            let template = json!({ "spec": { "containers": containers } });
            json!({ "metadata": { "name": "aws-node" }, "spec": { "template": template } })
        };
        let named = |name: &str| json!({ "metadata": { "name": name } });
        for (set, expected) in [
            (named("calico-node"), Some("Calico")),
            (named("cilium"), Some("Cilium")),
            (named("kube-flannel-ds"), None),
            (named("kube-proxy"), None),
            (amazon("--enable-network-policy=true"), Some("the Amazon VPC CNI")),
            (amazon("--enable-network-policy=false"), None),
        ] {
            assert_eq!(enforcing(&set), expected, "{set}");
        }
    }
}
