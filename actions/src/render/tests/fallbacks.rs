//! Tests the fallbacks of a flow's model: in its files, its environment and its volume.

use std::collections::BTreeMap;

use crds::Flow;
use serde_json::{Value, json};

use crate::render::{
    Credentials, FLOW, FLOW_SET, FlowContract, FlowImages, FlowModel, FlowParts, flow_config_children,
    flow_workload_children,
};

fn model(plugin: &str, type_: &str, key: &str, digest: &str) -> FlowModel {
    let secret = format!("{plugin}-keys");
    let spec = json!({
        "type": type_, "credentialsRef": { "name": secret },
        "headersFrom": [{ "name": "X-Key", "valueFrom": { "type": "Secret", "name": "h", "key": "k" } }],
    });
    let model = json!({ "provider": plugin, "model": "m", "pluginConfigRef": { "name": plugin } });
    FlowModel {
        model: serde_json::from_value(model).unwrap(),
        plugin: serde_json::from_value(spec).unwrap(),
        credentials: Some(Credentials { secret, values: [(key.to_owned(), digest.to_owned())].into() }),
        header_values: BTreeMap::new(),
        fallbacks: Vec::new(),
    }
}

fn parts(digest: &str) -> FlowParts {
    let fallbacks = vec![model("other", "anthropic", "ANTHROPIC_API_KEY", digest)];
    FlowParts {
        name: "f".into(),
        prompts: vec![("p".into(), "hi".into())],
        tools: Vec::new(),
        model: Some(FlowModel { fallbacks, ..model("first", "openai", "OPENAI_API_KEY", "1") }),
        left_out: None,
    }
}

/// Returns `config.json`, and the specification of the Pods.
fn rendered(contract: &FlowContract, in_set: bool) -> (Value, Value) {
    let metadata = json!({ "name": "f", "namespace": "default", "uid": "6f1c", "generation": 1 });
    let spec = json!({ "prompts": [{ "promptRef": { "name": "p" } }], "modelRef": { "name": "m" } });
    let flow: Flow = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
    let (kind, runtime) = (if in_set { FLOW_SET } else { FLOW }, &flow.spec.runtime);
    let config = flow_config_children(&flow, kind, runtime, contract);
    let config = config.iter().find_map(|child| child.body["data"]["config.json"].as_str()).unwrap();
    let images = FlowImages { runner: "runner", proxy: "proxy".into() };
    let [_, deployment] = flow_workload_children(&flow, kind, runtime, contract, images, Some(1)).unwrap();
    (serde_json::from_str(config).unwrap(), deployment.body["spec"]["template"]["spec"].clone())
}

#[test]
fn the_credentials_of_a_flows_fallback_are_variables() {
    let contract = FlowContract::of_flow(&parts("1"), &BTreeMap::new()).unwrap();
    let (config, pod) = rendered(&contract, false);
    assert_eq!(config["plugin"]["headers"], json!({ "X-Key": "$MODEL_FIRST__X_KEY" }));
    let expected = json!([{
        "model": { "provider": "other", "model": "m" },
        "plugin": { "type": "anthropic", "headers": { "X-Key": "$MODEL_OTHER__X_KEY" } },
        "credentials": { "ANTHROPIC_API_KEY": "$MODEL_OTHER__ANTHROPIC_API_KEY" },
    }]);
    assert_eq!(config["fallbacks"], expected);
    let from = json!({ "secretKeyRef": { "name": "other-keys", "key": "ANTHROPIC_API_KEY" } });
    let variable = json!({ "name": "MODEL_OTHER__ANTHROPIC_API_KEY", "valueFrom": from });
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(env.contains(&variable), "{env:?}");
    let changed = FlowContract::of_flow(&parts("2"), &BTreeMap::new()).unwrap();
    assert_ne!(changed.content_hash, contract.content_hash, "another key needs new Pods");
}

#[test]
fn the_credentials_of_a_fallback_in_a_set_are_files() {
    let contract = FlowContract::of_set("s", &[parts("1")], &BTreeMap::new()).unwrap();
    let (config, pod) = rendered(&contract, true);
    assert_eq!(config["fallbacks"][0]["credentialsDir"], "/genkit/flows/f/fallbacks/other");
    assert_eq!(config["fallbacks"][0]["credentialKeys"], json!(["ANTHROPIC_API_KEY"]));
    assert_eq!(config["fallbacks"][0].get("credentials"), None);
    let path = "flows/f/fallbacks/other/ANTHROPIC_API_KEY";
    let source = json!({ "secret": { "name": "other-keys", "items": [{ "key": "ANTHROPIC_API_KEY", "path": path }] } });
    let sources = pod["volumes"][1]["projected"]["sources"].as_array().unwrap();
    assert!(sources.contains(&source), "{sources:?}");
    let changed = FlowContract::of_set("s", &[parts("2")], &BTreeMap::new()).unwrap();
    assert_ne!(changed.content_hash, contract.content_hash, "another key needs new Pods");
}
