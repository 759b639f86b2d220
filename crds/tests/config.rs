//! Checks that the manifests in `config/`, the e2e manifests and the samples agree with the types of this crate.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail in a function beside it, too")]

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn files(directory: &str) -> Vec<String> {
    let mut files: Vec<String> = fs::read_dir(root().join(directory))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    files
}

fn documents(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap()).collect()
}

macro_rules! decode {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        /// Decodes an object as the operator does, and returns the error of the deserialization.
        fn decode(object: &Value) -> Result<(), String> {
            match object["kind"].as_str().unwrap() {
                $(stringify!($kind) => serde_json::from_value::<crds::$module::$kind>(object.clone()).map(drop),)+
                kind => panic!("{kind} is not a kind of ours"),
            }
            .map_err(|error| error.to_string())
        }
    };
}
crds::for_each_kind!(decode);

#[test]
fn config_crd_is_what_the_types_say() {
    let manifests = crds::manifests().unwrap();
    for (file, yaml) in &manifests {
        let written = fs::read_to_string(root().join("config/crd").join(file)).unwrap_or_default();
        assert!(
            written == *yaml,
            "config/crd/{file} is not what the types say: run `make manifests` and commit the result"
        );
    }
    let mut expected: Vec<&str> = manifests.iter().map(|(file, _)| file.as_str()).collect();
    let listed = &documents("config/crd/kustomization.yaml")[0]["resources"];
    assert_eq!(listed, &Value::from(expected.clone()), "config/crd/kustomization.yaml does not list every kind");
    expected.push("kustomization.yaml");
    expected.sort_unstable();
    assert_eq!(files("config/crd"), expected, "config/crd holds a file that is no kind's");
}

#[test]
fn each_manifest_tells_its_version_and_the_digest_of_its_schema() {
    for (file, yaml) in crds::manifests().unwrap() {
        let manifest: Value = serde_yaml::from_str(&yaml).unwrap();
        let annotations = &manifest["metadata"]["annotations"];
        assert_eq!(annotations["recif.dev/version"], env!("CARGO_PKG_VERSION"), "{file}");
        let digest = crds::digest::digest(&manifest["spec"]["versions"]);
        assert_eq!(annotations["recif.dev/schema"], digest[..16], "{file}");
    }
}

#[test]
fn the_manifests_are_the_same_each_time() {
    assert_eq!(crds::manifests().unwrap(), crds::manifests().unwrap());
}

/// The API server refuses a CustomResourceDefinition that breaks this rule.
#[test]
fn the_keys_of_every_list_map_are_required_or_have_a_default() {
    fn check(file: &str, schema: &Value) {
        for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
            let items = &schema["items"];
            let required = items["required"].as_array().is_some_and(|names| names.contains(key));
            let default = &items["properties"][key.as_str().unwrap()]["default"];
            assert!(required || !default.is_null(), "{file}: {key} of {}", schema["description"]);
        }
        let inner = schema.as_object().into_iter().flat_map(|fields| fields.values());
        inner.chain(schema.as_array().into_iter().flatten()).for_each(|inner| check(file, inner));
    }
    for file in files("config/crd").iter().filter(|file| file.contains(".agents.recif.dev")) {
        documents(&format!("config/crd/{file}")).iter().for_each(|document| check(file, document));
    }
}

/// Collects the fields without a description, for which `kubectl explain` shows nothing.
fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["description"].as_str().unwrap_or_default().is_empty() {
            found.push(path.clone());
        }
        undescribed(&path, field, found);
    }
    for key in ["items", "additionalProperties"] {
        schema.get(key).into_iter().for_each(|inner| undescribed(path, inner, found));
    }
}

#[test]
fn kubectl_explain_has_a_text_for_every_field() {
    for kind in crds::KINDS {
        let definition = serde_json::to_value(kind.definition()).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert!(schema["description"].is_string(), "{}", kind.name);
        let mut found = Vec::new();
        // The API server itself describes the metadata, and takes no text for it.
        for part in ["spec", "status"] {
            assert!(schema["properties"][part]["description"].is_string(), "{}: {part}", kind.name);
            undescribed(part, &schema["properties"][part], &mut found);
        }
        assert!(found.is_empty(), "{}: no description of {found:#?}", kind.name);
    }
}

#[test]
fn what_the_api_server_accepts_the_operator_can_read() {
    for file in files("e2e/manifests/accept") {
        if file.ends_with("null-means-default.yaml") {
            continue; // The API server removes the nulls before any client reads the object.
        }
        for document in documents(&format!("e2e/manifests/accept/{file}")) {
            decode(&document).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
    }
}

#[test]
fn every_rejected_manifest_says_which_message_it_expects() {
    for file in files("e2e/manifests/reject") {
        let text = fs::read_to_string(root().join("e2e/manifests/reject").join(&file)).unwrap();
        assert!(text.starts_with("# message: "), "{file} does not start with `# message: `");
        assert_eq!(documents(&format!("e2e/manifests/reject/{file}")).len(), 1, "{file}");
    }
}

/// Returns the objects of a folder with a `kustomization.yaml`.
fn resources(folder: &str) -> Vec<Value> {
    let kustomization = documents(&format!("{folder}/kustomization.yaml"));
    let files = kustomization[0]["resources"].as_array().unwrap().iter().map(|file| file.as_str().unwrap());
    files.filter(|file| file.ends_with(".yaml")).flat_map(|file| documents(&format!("{folder}/{file}"))).collect()
}

#[test]
fn the_fleet_can_be_read() {
    for object in resources("config/fleet").iter().filter(|it| it["apiVersion"] == "agents.recif.dev/v1") {
        decode(object).unwrap();
    }
}

#[test]
fn the_samples_can_be_read_and_name_only_tools_that_are_there() {
    let objects = resources("config/samples");
    let tools: Vec<&str> = objects
        .iter()
        .filter(|object| object["kind"] == "Tool")
        .map(|tool| tool["metadata"]["name"].as_str().unwrap())
        .collect();
    for object in &objects {
        decode(object).unwrap();
        for tool in object["spec"]["tools"].as_array().into_iter().flatten() {
            assert!(tools.contains(&tool.as_str().unwrap()), "no sample Tool {tool}");
        }
    }
}

#[test]
fn the_samples_of_frameworks_can_be_read_and_each_program_has_its_image() {
    let folder = "config/samples/frameworks";
    let samples = files(folder).into_iter().filter(|name| root().join(folder).join(name).is_dir());
    for sample in samples {
        let own = format!("recif.local/sample-{sample}:dev");
        let objects = resources(&format!("{folder}/{sample}"));
        for object in &objects {
            decode(object).unwrap();
        }
        let uses = objects.iter().any(|object| object["spec"].to_string().contains(&own));
        let builds = root().join(folder).join(&sample).join("Dockerfile").exists();
        assert_eq!(uses, builds, "{sample}: its objects use {own} if it has a Dockerfile");
    }
}

#[test]
fn with_all_samples_of_frameworks_the_concierge_has_each_tool_of_them() {
    let folder = "config/samples/frameworks";
    let tools = resources(folder);
    for tool in &tools {
        decode(tool).unwrap();
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool["metadata"]["name"].as_str().unwrap()).collect();
    let patch = documents(&format!("{folder}/kustomization.yaml"))[0]["patches"][0].clone();
    assert_eq!(patch["target"]["name"], "concierge");
    let operations: Vec<Value> = serde_yaml::from_str(patch["patch"].as_str().unwrap()).unwrap();
    let added: Vec<&str> = operations.iter().map(|operation| operation["value"].as_str().unwrap()).collect();
    assert_eq!(added, names);
}
