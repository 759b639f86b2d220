//! Tests `egress` of agents as far as it shows without a network that enforces policies: the policy as the API server keeps it, what
//! the runtime refuses, and entries that the API server refuses.

use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::{
    kinds::{AGENT, NETWORK_POLICY},
    manifests::{agent, http_tool},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    the_policy_has_the_list_and_the_runtime_refuses_other_hosts,
    an_entry_that_is_no_address_is_refused_with_examples,
);

async fn the_policy_has_the_list_and_the_runtime_refuses_other_hosts(ns: Namespace) -> Result<()> {
    ns.provide(&http_tool("weather")).await?;
    let egress = json!(["api.example.com:8443", "10.1.0.0/16:5432", "queue.jobs.svc"]);
    let running = ns.start(&agent("closed", json!({"tools": ["fetch_url", "weather"], "egress": egress}))).await?;
    ensure!(running.condition("EgressRestricted").is_true(), "{}", running.describe());
    let policy = ns.get(NETWORK_POLICY, "closed-sidecar").await?;
    ensure!(*policy.at("/spec/policyTypes") == json!(["Ingress", "Egress"]), "{}", policy.at("/spec"));
    let port = |number: i32| json!([{"protocol": "TCP", "port": number}]);
    let exact = json!({"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": port(5432)});
    let named = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let inside = json!({"namespaceSelector": named("jobs")});
    let rules = policy.at("/spec/egress").as_array().cloned().unwrap_or_default();
    let peers: Vec<_> = rules.iter().flat_map(|rule| rule["to"].as_array().cloned().unwrap_or_default()).collect();
    ensure!(rules.contains(&exact) && peers.contains(&inside), "{rules:?}");
    let public = rules.iter().find(|rule| rule["to"][0]["ipBlock"]["cidr"] == "0.0.0.0/0");
    let ports = public.and_then(|rule| rule["ports"].as_array()).into_iter().flatten();
    let ports: Vec<_> = ports.map(|port| port["port"].clone()).collect();
    let known = [json!(80), json!(8443)];
    ensure!(known.iter().all(|port| ports.contains(port)), "the port of the tool and that of the list: {ports:?}");

    for (url, words) in [
        ("https://example.org/", "refused: host example.org is not in the egress list of this agent"),
        ("http://169.254.169.254/latest/meta-data/", "refused: its address 169.254.169.254 is in 169.254.0.0/16"),
    ] {
        let reply = ns.chat("closed", &format!(r#"/tool fetch_url {{"url": "{url}"}}"#)).await?;
        ensure!(reply.contains(words), "{url}: {reply:?}");
    }

    ns.edit(AGENT, "closed", json!({"spec": {"egress": null}})).await?;
    let opened = |it: &Object| *it.at("/spec/policyTypes") == json!(["Ingress"]) && it.at("/spec/egress").is_null();
    ns.until(NETWORK_POLICY, "closed-sidecar", REPORT_TIMEOUT, "restricts nothing", opened).await?;
    Ok(())
}

async fn an_entry_that_is_no_address_is_refused_with_examples(ns: Namespace) -> Result<()> {
    for entry in ["https://api.example.com", "api.example.com:65536", "10.0.0.0/33", "*", "999.1.1.1"] {
        let Err(error) = ns.create_object(&agent("wrong", json!({"egress": [entry]}))).await else {
            bail!("egress {entry:?} is accepted")
        };
        let text = format!("{error:#}");
        ensure!(text.contains("write api.example.com, *.example.com:8443 or 10.1.0.0/16:5432"), "{entry}: {text}");
    }
    let entries = json!(["api.example.com", "*.example.com:8443", "10.1.0.0/16", "2001:db8::/32", "[2001:db8::1]:80"]);
    ns.create_object(&agent("right", json!({"replicas": 0, "egress": entries}))).await?;
    Ok(())
}
