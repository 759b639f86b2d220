//! Compares the files of flows with their keys, and the variables.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    code, flow_container, flow_of, flow_parts, general, keys, set_container, set_of, table, table_of, texts, variables,
};
use crate::render::{FLOW, FLOW_SET, FlowContract, flow_config_children};

#[test]
fn the_page_names_every_variable_of_a_flow_and_no_other() {
    let documented: BTreeSet<String> =
        table("### Variables of a flow", "").iter().flat_map(|row| code(row[0])).map(str::to_owned).collect();
    for (container, _) in [flow_container(&flow_of(json!({}))), set_container(&set_of(json!({})))] {
        let rendered: BTreeSet<_> = variables(&container).iter().map(|name| general(name)).collect();
        assert_eq!(rendered, documented);
    }
}

/// Returns the paths of the files in the volume, with the names of the page for what stands for any name.
fn files(volume: &Value, mount: &str) -> BTreeSet<String> {
    let sources = volume["projected"]["sources"].as_array().unwrap().iter();
    let items = sources.flat_map(|source| ["configMap", "secret"].map(|kind| source[kind]["items"].clone()));
    let paths = items.filter_map(|items| items.as_array().cloned()).flatten();
    let general = |path: &str| {
        let mut parts: Vec<&str> = path.split('/').collect();
        if parts[0] == "flows" {
            parts[1] = "<flow>";
        }
        let folder = parts.len().checked_sub(2).map_or("", |at| parts[at]);
        let last = parts.len() - 1;
        parts[last] = match folder {
            "prompts" => "<name>.prompt",
            "tools" => "<name>.json",
            "credentials" => "<key>",
            _ => parts[last],
        };
        if let Some(at) = parts.iter().position(|part| *part == "fallbacks") {
            parts[at + 1] = "<pluginconfig>";
            parts[at + 2] = "<key>";
        }
        format!("{mount}/{}", parts.join("/"))
    };
    paths.map(|item| general(item["path"].as_str().unwrap())).collect()
}

#[test]
fn the_page_names_every_file_of_flows_and_no_other() {
    let rows = table("### Files", "");
    let alone = FlowContract::of_flow(&flow_parts("f"), &BTreeMap::new()).unwrap();
    let set = FlowContract::of_set("s", &[flow_parts("f")], &BTreeMap::new()).unwrap();
    for (column, contract) in [(1, alone), (2, set)] {
        let documented: BTreeSet<_> = rows.iter().flat_map(|row| code(row[column])).map(str::to_owned).collect();
        let (volume, mount) = contract.volume();
        assert_eq!(files(&volume, mount), documented);
    }
}

#[test]
fn the_page_names_every_key_of_the_files_and_no_other() {
    let documented: BTreeMap<&str, BTreeSet<String>> = table("### Files", "Keys, where")
        .into_iter()
        .map(|row| (row[0].trim_matches('`'), texts(&code(row[1]))))
        .collect();
    let of = |what: &str| documented.get(what).unwrap_or_else(|| panic!("no row {what}")).clone();
    let set = set_of(json!({}));
    let contract = FlowContract::of_set("s", &[flow_parts("f")], &BTreeMap::new()).unwrap();
    let children = flow_config_children(&set, FLOW_SET, &set.spec.runtime, &contract);
    let mut files = BTreeMap::new();
    for child in &children {
        for (name, text) in
            child.body["data"].as_object().into_iter().flatten().filter(|(name, _)| name.ends_with(".json"))
        {
            let text = text.as_str().unwrap();
            let decoded = serde_json::from_str::<Value>(text).unwrap_or_else(|_| {
                let bytes: k8s_openapi::ByteString = serde_json::from_value(json!(text)).unwrap();
                serde_json::from_slice(&bytes.0).unwrap()
            });
            files.insert(name.clone(), decoded);
        }
    }
    let manifest = &files["manifest.json"];
    assert_eq!(keys(manifest), of("manifest.json"));
    let entry = &manifest["flows"][0];
    let dir = entry["dir"].as_str().unwrap();
    // Its words are the keys, and the folder.
    assert_eq!(dir, "/genkit/flows/f");
    let mut expected = of("a flow of it");
    assert!(expected.remove("/genkit/flows/<flow>"));
    assert_eq!(keys(entry), expected);

    let config = &files["config.json"];
    assert_eq!(keys(config), of("config.json"));
    assert_eq!(keys(&config["defaultModel"]), of("defaultModel"));
    assert_eq!(keys(&config["plugin"]), of("plugin"));
    assert_eq!(keys(&config["plugin"]["tls"]), of("tls"));
    let flow = flow_of(json!({}));
    let alone = FlowContract::of_flow(&flow_parts("f"), &BTreeMap::new()).unwrap();
    let of_flow = flow_config_children(&flow, FLOW, &flow.spec.runtime, &alone);
    let of_flow = of_flow.iter().find_map(|child| child.body["data"]["config.json"].as_str()).unwrap();
    let of_flow: Value = serde_json::from_str(of_flow).unwrap();
    // As variables in a Flow, and as files in a FlowSet.
    let fallback: BTreeSet<_> =
        [&of_flow, config].into_iter().flat_map(|config| keys(&config["fallbacks"][0])).collect();
    assert_eq!(fallback, of("a fallback"));
    let credentials = config["credentialsDir"].as_str().unwrap();
    assert_eq!(credentials, format!("{dir}/credentials"));

    let (mut tool_keys, mut implementations) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for (_, tool) in files.iter().filter(|(name, _)| !["manifest.json", "config.json"].contains(&name.as_str())) {
        tool_keys.extend(keys(tool));
        for (kind, fields) in tool["implementation"].as_object().unwrap() {
            let fields = if fields.is_object() { keys(fields) } else { BTreeSet::new() };
            implementations.entry(kind.clone()).or_default().extend(fields);
        }
    }
    assert_eq!(tool_keys, of("a tool"));
    assert_eq!(implementations.keys().cloned().collect::<BTreeSet<_>>(), of("implementation"));
    for (kind, fields) in implementations.iter().filter(|(_, fields)| !fields.is_empty()) {
        assert_eq!(*fields, of(kind), "{kind}");
    }
}

#[test]
fn the_page_of_flows_says_where_each_key_of_config_json_comes_from() {
    const FLOWS: &str = include_str!("../../../../../docs/flows.md");
    let rows = table_of(FLOWS, "### Fields in its files", "");
    let documented: BTreeSet<String> = rows.iter().flat_map(|row| code(row[0])).map(str::to_owned).collect();
    let set = set_of(json!({}));
    let contract = FlowContract::of_set("s", &[flow_parts("f")], &BTreeMap::new()).unwrap();
    let children = flow_config_children(&set, FLOW_SET, &set.spec.runtime, &contract);
    let config = children.iter().find_map(|child| child.body["data"]["config.json"].as_str()).unwrap();
    let config: Value = serde_json::from_str(config).unwrap();
    let mut rendered = BTreeSet::new();
    for (key, value) in config.as_object().unwrap() {
        match key.as_str() {
            "defaultModel" | "plugin" => rendered.extend(keys(value).iter().map(|inner| format!("{key}.{inner}"))),
            _ => rendered.extend([key.clone()]),
        }
    }
    assert_eq!(documented, rendered);
}
