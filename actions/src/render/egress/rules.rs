//! Renders the egress part of a workload's NetworkPolicy.
//!
//! A policy knows addresses, Pods and namespaces, and neither DNS names nor Services. So ranges are admitted exactly; the port of a
//! DNS name is admitted at every public address, and the runtime holds to the name; and the name of a Service admits the Pods of
//! its namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use crds::egress::AddressRange;
use serde_json::{Value, json};

use crate::render::RenderSettings;

/// Ranges that are not public: private, link-local and of metadata services. Those to which NAT64 maps the ones of IPv4 are added;
/// its prefix for local use (RFC 8215) leads to any of them.
const NOT_PUBLIC: [&str; 14] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.192/32",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "64:ff9b:1::/48",
    "fc00::/7",
    "fe80::/10",
];
/// Port of DNS, of the cluster's server and of the node's own.
const DNS: u16 = 53;
/// Port at which the gateways take what workloads report.
const REPORTS: u16 = 8082;
/// Label of a namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Destinations that the egress part admits, besides DNS and the gateways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressRules {
    /// Port to the ranges that are admitted at it.
    pub ranges: BTreeMap<u16, BTreeSet<AddressRange>>,
    /// Ports that are admitted at every public address.
    pub public: BTreeSet<u16>,
    /// Namespaces whose Pods are admitted at every port.
    pub namespaces: BTreeSet<String>,
    /// Pods that are admitted at every port, by namespace and labels.
    pub pods: BTreeSet<(String, BTreeMap<String, String>)>,
}

impl EgressRules {
    /// Renders the rules, in the same order each time.
    pub fn render(&self, settings: &RenderSettings) -> Vec<Value> {
        let tcp = |port: &u16| json!({ "protocol": "TCP", "port": port });
        let mut rules = vec![
            json!({ "ports": [{ "protocol": "UDP", "port": DNS }, { "protocol": "TCP", "port": DNS }] }),
            json!({ "to": [namespace(&settings.operator_namespace)], "ports": [tcp(&REPORTS)] }),
        ];
        let inside = self.pods.iter().map(|(name, labels)| {
            let mut peer = namespace(name);
            peer["podSelector"] = json!({ "matchLabels": labels });
            peer
        });
        let inside: Vec<_> = inside.chain(self.namespaces.iter().map(|name| namespace(name))).collect();
        if !inside.is_empty() {
            rules.push(json!({ "to": inside }));
        }
        for (port, ranges) in &self.ranges {
            let peers = ranges.iter().map(|range| json!({ "ipBlock": { "cidr": range.to_string() } }));
            rules.push(json!({ "to": peers.collect::<Vec<_>>(), "ports": [tcp(port)] }));
        }
        if !self.public.is_empty() {
            let ports: Vec<_> = self.public.iter().map(tcp).collect();
            let closed = not_public(&settings.cluster_cidrs);
            let (v4, v6): (Vec<_>, Vec<_>) = closed.into_iter().partition(AddressRange::is_ipv4);
            rules.push(json!({ "to": [block("0.0.0.0/0", &v4), block("::/0", &v6)], "ports": ports }));
        }
        rules
    }
}

fn namespace(name: &str) -> Value {
    json!({ "namespaceSelector": { "matchLabels": { NAMESPACE_NAME: name } } })
}

/// Returns the ranges that are not public and those of the cluster, each once, with those to which NAT64 maps them.
fn not_public(cluster: &[AddressRange]) -> Vec<AddressRange> {
    let known = NOT_PUBLIC.iter().filter_map(|range| range.parse::<AddressRange>().ok());
    let ranges = known.chain(cluster.iter().copied()).flat_map(|range| iter::once(range).chain(range.nat64()));
    let mut found = Vec::new();
    for range in ranges {
        if !found.contains(&range) {
            found.push(range);
        }
    }
    found
}

/// Returns the block of all addresses of a family but for these ranges.
fn block(all: &str, except: &[AddressRange]) -> Value {
    let except: Vec<String> = except.iter().map(ToString::to_string).collect();
    json!({ "ipBlock": { "cidr": all, "except": except } })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::fake::settings;

    fn range(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    /// Reports whether the rules admit a TCP connection to this address outside of the cluster.
    fn admits(rules: &[Value], address: &str, port: u16) -> bool {
        let address: IpAddr = address.parse().unwrap();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        rules.iter().any(|rule| {
            let ports = list(&rule["ports"]);
            let at = ports.is_empty() || ports.iter().any(|it| it["protocol"] == "TCP" && it["port"] == port);
            let within = |cidr: &Value| range(cidr.as_str().unwrap()).contains(address);
            let to = |peer: &Value| {
                let block = &peer["ipBlock"];
                !block.is_null() && within(&block["cidr"]) && !list(&block["except"]).iter().any(within)
            };
            at && (rule.get("to").is_none() || list(&rule["to"]).iter().any(to))
        })
    }

    #[test]
    fn dns_and_the_gateways_are_always_admitted() {
        let rules = EgressRules::default().render(&settings());
        assert_eq!(rules.len(), 2);
        assert!(admits(&rules, "169.254.20.10", 53) && !admits(&rules, "8.8.8.8", 443));
        assert_eq!(rules[1]["ports"], json!([{ "protocol": "TCP", "port": 8082 }]));
        assert_eq!(rules[1]["to"][0]["namespaceSelector"]["matchLabels"][NAMESPACE_NAME], "recif-system");
    }

    #[test]
    fn a_range_is_admitted_exactly_and_a_name_at_public_addresses() {
        let mut rules = EgressRules { public: [443].into(), ..EgressRules::default() };
        rules.ranges.insert(5432, [range("10.1.0.0/16")].into());
        let cluster_cidrs = vec![range("203.0.113.0/24"), range("2001:db8:1::/48"), range("10.0.0.0/8")];
        let rules = rules.render(&RenderSettings { cluster_cidrs, ..settings() });
        for (address, port, expected) in [
            ("10.1.2.3", 5432, true),
            ("10.1.2.3", 443, false),
            ("10.2.0.1", 5432, false),
            ("8.8.8.8", 443, true),
            ("8.8.8.8", 80, false),
            ("192.168.1.1", 443, false),
            ("172.31.0.1", 443, false),
            ("100.100.100.200", 443, false),
            ("169.254.169.254", 443, false),
            ("168.63.129.16", 443, false),
            ("203.0.113.7", 443, false),
            ("2606:4700::1", 443, true),
            ("64:ff9b::808:808", 443, true),
            ("64:ff9b::a9fe:a9fe", 443, false),
            ("64:ff9b::a01:1", 443, false),
            ("64:ff9b::c000:c0", 443, false),
            ("64:ff9b::c612:1", 443, false),
            ("64:ff9b::cb00:7107", 443, false),
            ("64:ff9b:1::808:808", 443, false),
            ("fd00:ec2::254", 443, false),
            ("fe80::1", 443, false),
            ("2001:db8:1::1", 443, false),
        ] {
            assert_eq!(admits(&rules, address, port), expected, "{address} {port}");
        }
        // The API server takes as exception only a strict part of the block, each once.
        for peer in rules.iter().flat_map(|rule| rule["to"].as_array().cloned().unwrap_or_default()) {
            let except = peer["ipBlock"]["except"].as_array().cloned().unwrap_or_default();
            let texts: BTreeSet<_> = except.iter().map(|it| it.as_str().unwrap()).collect();
            assert_eq!(texts.len(), except.len());
            assert!(except.iter().all(|it| !range(it.as_str().unwrap()).is_everything()));
        }
    }

    #[test]
    fn pods_and_namespaces_are_admitted_at_every_port() {
        let labels = BTreeMap::from([("recif.dev/agent".to_owned(), "b".to_owned())]);
        let rules = EgressRules {
            namespaces: ["tools".to_owned()].into(),
            pods: [("team".to_owned(), labels)].into(),
            ..EgressRules::default()
        };
        let rules = rules.render(&settings());
        let named = |name: &str| json!({ "matchLabels": { NAMESPACE_NAME: name } });
        assert_eq!(
            rules[2],
            json!({ "to": [
                { "namespaceSelector": named("team"), "podSelector": { "matchLabels": { "recif.dev/agent": "b" } } },
                { "namespaceSelector": named("tools") },
            ] })
        );
    }
}
