//! Checks that the manifests in config/ have enough memory, a standby, a single writer of a file, and closed ports.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use serde_yaml::Value;

/// Returns the documents of a file of config/.
fn documents(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file)).unwrap();
    text.split("\n---\n").map(|document| serde_yaml::from_str(document).unwrap()).collect()
}

fn deployment(part: &str) -> Value {
    documents(&format!("{part}/deployment.yaml")).remove(0)
}

/// Returns the memory limit of a component, in mebibytes.
fn limit(part: &str) -> u64 {
    let container = &deployment(part)["spec"]["template"]["spec"]["containers"][0];
    let text = container["resources"]["limits"]["memory"].as_str().unwrap().to_owned();
    text.strip_suffix("Mi").unwrap().parse().unwrap()
}

#[test]
fn memory_is_limited_to_no_less_than_four_times_what_a_thousand_agents_take() {
    for (part, megabytes) in [("operator", 38), ("gateway", 20), ("control-plane", 85)] {
        assert!(limit(part) * 1_048_576 >= 4 * megabytes * 1_000_000, "{part}");
    }
}

#[test]
fn the_operator_has_a_standby_and_no_node_takes_both() {
    assert_eq!(deployment("operator")["spec"]["replicas"], 2);
    let budget = documents("operator/disruption.yaml").remove(0);
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(budget["spec"]["selector"], deployment("operator")["spec"]["selector"]);
}

#[test]
fn a_file_of_history_has_one_writer() {
    let spec = &deployment("control-plane")["spec"];
    assert_eq!((&spec["replicas"], &spec["strategy"]["type"]), (&1.into(), &"Recreate".into()));
}

/// Returns the ports that our NetworkPolicies open to Pods of this namespace with these labels.
fn open_ports(part: &str, labels: &[(&str, &str)], namespace: &[(&str, &str)], same_namespace: bool) -> Vec<u64> {
    let policy = documents(&format!("{part}/network.yaml")).remove(0);
    assert_eq!(policy["spec"]["podSelector"], deployment(part)["spec"]["selector"], "{part}");
    let selects = |selector: &Value, labels: &[(&str, &str)]| {
        let by_labels = selector["matchLabels"].as_mapping().is_none_or(|wanted| {
            wanted.iter().all(|(name, value)| labels.iter().any(|(n, v)| name == *n && value == *v))
        });
        let by_expressions = selector["matchExpressions"].as_sequence().is_none_or(|all| {
            all.iter().all(|one| {
                let values = one["values"].as_sequence().unwrap();
                labels.iter().any(|(n, v)| one["key"] == *n && values.iter().any(|value| value == *v))
            })
        });
        by_labels && by_expressions
    };
    let admits = |peer: &Value| match peer.get("namespaceSelector") {
        Some(selector) => selects(selector, namespace),
        None => same_namespace && selects(&peer["podSelector"], labels),
    };
    let rules = policy["spec"]["ingress"].as_sequence().unwrap().iter();
    let rules = rules.filter(|rule| rule["from"].as_sequence().is_none_or(|peers| peers.iter().any(admits)));
    rules
        .flat_map(|rule| rule["ports"].as_sequence().unwrap().iter().map(|port| port["port"].as_u64().unwrap()))
        .collect()
}

#[test]
fn what_names_every_workload_is_open_to_the_operator_the_gateways_and_scrapers_alone() {
    let named = |name: &'static str| [("app.kubernetes.io/name", name)];
    for (part, unlabeled, scraped) in
        [("operator", vec![], 8080), ("gateway", vec![8080, 8443, 8082], 8081), ("control-plane", vec![8780], 8781)]
    {
        let with_metrics = [unlabeled.clone(), vec![scraped]].concat();
        assert_eq!(open_ports(part, &named("any"), &[], false), unlabeled, "{part}, from another namespace");
        assert_eq!(
            open_ports(part, &named("recif-operator"), &[], false),
            unlabeled,
            "{part}, by a name of ours elsewhere"
        );
        assert_eq!(open_ports(part, &named("any"), &[("metrics", "enabled")], false), with_metrics, "{part}, scraped");
        let ours = if part == "gateway" { with_metrics } else { unlabeled };
        for peer in ["recif-operator", "recif-gateway"] {
            assert_eq!(open_ports(part, &named(peer), &[], true), ours, "{part}, from {peer}");
        }
    }
}

#[test]
fn the_policies_name_no_namespace() {
    for file in ["rbac/own-objects.yaml", "gateway/own-field.yaml"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file)).unwrap();
        assert!(!text.contains("recif-system"), "{file} holds only in recif-system");
    }
}

#[test]
fn an_operator_of_some_namespaces_may_hold_its_role_binding_and_no_other() {
    let kustomization = documents("namespaced/kustomization.yaml").remove(0);
    let patches = kustomization["patches"].as_sequence().unwrap().iter();
    let patch = patches.clone().find(|patch| patch["target"]["kind"] == "ClusterRole").unwrap();
    let operations: Value = serde_yaml::from_str(patch["patch"].as_str().unwrap()).unwrap();
    let rules: Vec<&Value> = operations.as_sequence().unwrap().iter().map(|operation| &operation["value"]).collect();
    let binding = rules.iter().find(|rule| rule["resources"][0] == "rolebindings").unwrap();
    assert_eq!(binding["resourceNames"].as_sequence().unwrap(), &vec![Value::from("recif-operator")]);
    assert_eq!(binding["verbs"].as_sequence().unwrap().len(), 3, "list, watch and patch");
    let bound = documents("namespaced/team-a.yaml").into_iter().filter(|it| it["metadata"]["name"] == "recif-operator");
    assert_eq!(bound.count(), 1, "the RoleBinding has the name that the operator knows");
}
