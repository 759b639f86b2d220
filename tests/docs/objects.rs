//! The objects in documents.

use serde::Deserialize as _;
use serde_json::Value;
use testing::markdown::{Fence, fences};

use super::pages;

/// Returns the YAML of a fence: its text, or the here-documents of a shell block.
fn manifests(fence: &Fence) -> Vec<String> {
    match fence.info.split(' ').next() {
        Some("yaml") => vec![fence.text.clone()],
        Some("sh") => {
            let begun = fence.text.split("<<'END'\n").skip(1);
            begun.filter_map(|rest| rest.split_once("\nEND\n")).map(|(text, _)| text.to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns a schema that refuses fields that it does not name, as the API server does with strict validation.
fn strict(mut schema: Value) -> Value {
    close(&mut schema);
    schema
}

fn close(schema: &mut Value) {
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("default");
        if fields.contains_key("properties") && !fields.contains_key("additionalProperties") && !is_open {
            fields.insert("additionalProperties".into(), false.into());
        }
        if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
            properties.values_mut().for_each(close);
        }
        for key in ["items", "additionalProperties"] {
            fields.get_mut(key).into_iter().for_each(close);
        }
    }
}

/// Returns what the CRD of its kind says against an object; rules in CEL are for the API server alone.
fn problems(object: &Value) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let Some(kind) = crds::KINDS.iter().find(|known| known.name == kind) else {
        return vec![format!("{kind:?} is not a kind of ours")];
    };
    let definition = serde_json::to_value(kind.definition()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let validator = jsonschema::validator_for(&strict(schema.clone())).unwrap();
    let errors = validator.iter_errors(&object["spec"]);
    errors.map(|error| format!("spec{}: {error}", error.instance_path())).collect()
}

#[test]
fn every_object_in_a_document_passes_its_crd() {
    let mut objects = 0;
    for (page, text) in pages() {
        for fence in fences(&text) {
            let place = format!("{}:{}", page.display(), fence.line);
            for manifest in manifests(&fence) {
                for document in serde_yaml::Deserializer::from_str(&manifest) {
                    let object = Value::deserialize(document).unwrap_or_else(|error| panic!("{place}: {error}"));
                    if object["apiVersion"] != "agents.recif.dev/v1" {
                        continue;
                    }
                    objects += 1;
                    assert!(object["metadata"]["name"].is_string(), "{place}: no metadata.name");
                    assert!(object.get("status").is_none(), "{place}: a status");
                    let problems = problems(&object);
                    assert!(problems.is_empty(), "{place}: {problems:#?}");
                }
            }
        }
    }
    assert!(objects > 20, "{objects}");
}

#[test]
fn an_unknown_field_and_a_wrong_value_are_seen() {
    let agent = |spec: Value| serde_json::json!({ "kind": "Agent", "spec": spec });
    let good = serde_json::json!({ "name": "A", "framework": "corail", "env": [{ "name": "A", "value": "b" }] });
    assert_eq!(problems(&agent(good)), [""; 0]);
    for (spec, part) in [
        (serde_json::json!({ "name": "A", "framework": "corail", "toolz": [] }), "toolz"),
        (serde_json::json!({ "name": "A", "framework": "corail", "timeout": 90 }), "90 is not"),
        (serde_json::json!({ "name": "A" }), "framework"),
        (serde_json::json!({ "name": "A", "framework": "corail", "scaling": { "max": 1 } }), "max"),
    ] {
        let problems = problems(&agent(spec));
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
    }
}
