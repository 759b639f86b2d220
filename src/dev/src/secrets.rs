//! Secrets that objects refer to and that are in no file: they are made of the variables of `.env`, as a user would make them on a
//! cluster by hand.
//!
//! References are found by the names of their fields, wherever these are: in our kinds, in a `podTemplate`, in a Deployment.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    env_file::Variables,
    manifest::{Manifest, ObjectId, made},
};

/// Content that objects ask of one Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Keys that are named.
    pub(crate) keys: BTreeSet<String>,
    /// The Secret is wanted as a whole.
    pub(crate) whole: bool,
}

/// Secrets by namespace and name.
pub(crate) type WantedSecrets = BTreeMap<(String, String), Wanted>;

/// Returns the Secrets that objects refer to and that are not among them.
pub(crate) fn wanted(manifests: &[Manifest]) -> WantedSecrets {
    let mut wanted = WantedSecrets::new();
    for manifest in manifests {
        collect(&manifest.object, &mut |name, keys, _| {
            let entry = wanted.entry((manifest.id.namespace.clone(), name.to_owned())).or_default();
            entry.whole |= keys.is_empty();
            entry.keys.extend(keys.iter().map(|key| (*key).to_owned()));
        });
    }
    let is_given = |(namespace, name): &(String, String)| {
        manifests.iter().any(|manifest| manifest.id == secret_id(namespace, name))
    };
    wanted.retain(|place, _| !is_given(place));
    wanted
}

/// Returns the keys of the Secrets that an object refers to, by the name of the Secret. No keys: it is wanted as a whole.
pub(crate) fn of_object(object: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    collect(object, &mut |name, keys, optional| {
        if !optional {
            found.entry(name.to_owned()).or_default().extend(keys.iter().map(|key| (*key).to_owned()));
        }
    });
    found
}

/// Calls `add` with each reference to a Secret: its name, the keys (none: all of them), and whether it may be missing.
fn collect(value: &Value, add: &mut dyn FnMut(&str, &[&str], bool)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, add)),
        Value::Object(fields) => {
            for (field, value) in fields {
                reference(field, value, fields, add);
                collect(value, add);
            }
        }
        _ => {}
    }
}

fn reference(field: &str, value: &Value, siblings: &Map<String, Value>, add: &mut dyn FnMut(&str, &[&str], bool)) {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let optional = value.get("optional").and_then(Value::as_bool).unwrap_or_default();
    let items = || -> Vec<&str> {
        let items = value.get("items").and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.get("key").and_then(Value::as_str)).collect()
    };
    match field {
        // A variable, or the header of a Tool.
        "secretKeyRef" => {
            if let (Some(name), Some(key)) = (text("name"), text("key")) {
                add(name, &[key], optional);
            }
        }
        // Certificates for a RemoteMCPServer.
        "caSecretRef" => {
            if let Some(name) = text("name") {
                add(name, &[text("key").unwrap_or("ca.crt")], false);
            }
        }
        // A header of a RemoteMCPServer.
        "valueFrom" if text("type") == Some("Secret") => {
            if let (Some(name), Some(key)) = (text("name"), text("key")) {
                add(name, &[key], false);
            }
        }
        // All variables of a container.
        "secretRef" => {
            if let Some(name) = text("name") {
                add(name, &[], optional);
            }
        }
        "secretRefs" => {
            let names = value.as_array().into_iter().flatten();
            names.filter_map(|item| item.get("name")?.as_str()).for_each(|name| add(name, &[], false));
        }
        // A provider of models.
        "credentialsRef" => {
            let keys = siblings.get("credentialKeys").and_then(Value::as_array).into_iter().flatten();
            let keys: Vec<&str> = keys.filter_map(Value::as_str).collect();
            if let Some(name) = text("name") {
                add(name, &keys, false);
            }
        }
        // A volume, or a source of a projected one.
        "secret" => {
            if let Some(name) = text("secretName").or_else(|| text("name")) {
                add(name, &items(), optional);
            }
        }
        _ => {}
    }
}

/// Secret that is made, with the keys that it gets.
#[derive(Debug, PartialEq)]
pub(crate) struct MadeSecret {
    /// The object.
    pub(crate) manifest: Manifest,
    /// Its keys.
    pub(crate) keys: Vec<String>,
}

/// Makes the Secrets for which there are variables; `file` is the name of their file.
pub(crate) fn make(wanted: &WantedSecrets, variables: &Variables, file: &str) -> Vec<MadeSecret> {
    let of = |((namespace, name), wanted): (&(String, String), &Wanted)| {
        let has = |key: &&String| wanted.whole || wanted.keys.contains(*key);
        let keys: Vec<String> = variables.keys().filter(has).cloned().collect();
        if keys.is_empty() {
            return None;
        }
        let encoded = |key: &String| Some((key.clone(), STANDARD.encode(variables.get(key)?).into()));
        let data: Map<String, Value> = keys.iter().filter_map(encoded).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": name, "namespace": namespace }, "data": data,
        });
        Some(MadeSecret { manifest: made(secret_id(namespace, name), object, file), keys })
    };
    wanted.iter().filter_map(of).collect()
}

fn secret_id(namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Returns what to put into the file of variables, so that an object gets the Secrets that it refers to: a key each.
pub(crate) fn missing_keys(
    object: &Value,
    namespace: &str,
    wanted: &WantedSecrets,
    variables: &Variables,
) -> Vec<String> {
    let mut missing = BTreeSet::new();
    for (name, keys) in of_object(object) {
        if !wanted.contains_key(&(namespace.to_owned(), name)) {
            continue;
        }
        if keys.is_empty() && variables.is_empty() {
            missing.insert("KEY".to_owned());
        }
        missing.extend(keys.into_iter().filter(|key| !variables.contains_key(key)));
    }
    missing.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::contents;

    const CONFIG: &str = "apiVersion: agents.recif.dev/v1\nkind: PluginConfig\nmetadata: {name: p}\nspec:\n  type: openai\n  credentialsRef: {name: openai}\n  credentialKeys: [OPENAI_API_KEY]\n";

    fn variables(names: &[&str]) -> Variables {
        names.iter().map(|name| ((*name).to_owned(), format!("value of {name}"))).collect()
    }

    #[test]
    fn references_are_found_in_every_form() {
        let cases = [
            (
                json!({ "env": [{ "name": "X", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
                vec![("s", vec!["k"])],
            ),
            (json!({ "headersFrom": [{ "secretKeyRef": { "name": "s", "key": "k" } }] }), vec![("s", vec!["k"])]),
            (
                json!({ "headersFrom": [{ "name": "A", "valueFrom": { "type": "Secret", "name": "s", "key": "k" } }] }),
                vec![("s", vec!["k"])],
            ),
            (
                json!({ "headersFrom": [{ "name": "A", "valueFrom": { "type": "ConfigMap", "name": "s", "key": "k" } }] }),
                vec![],
            ),
            (json!({ "tls": { "caSecretRef": { "name": "s" } } }), vec![("s", vec!["ca.crt"])]),
            (
                json!({ "envFrom": [{ "secretRef": { "name": "s" } }, { "configMapRef": { "name": "c" } }] }),
                vec![("s", vec![])],
            ),
            (
                json!({ "deployment": { "secretRefs": [{ "name": "a" }, { "name": "b" }] } }),
                vec![("a", vec![]), ("b", vec![])],
            ),
            (json!({ "credentialsRef": { "name": "s" } }), vec![("s", vec![])]),
            (json!({ "credentialsRef": { "name": "s" }, "credentialKeys": ["k"] }), vec![("s", vec!["k"])]),
            (
                json!({ "volumes": [{ "name": "v", "secret": { "secretName": "s", "items": [{ "key": "k", "path": "p" }] } }] }),
                vec![("s", vec!["k"])],
            ),
            (
                json!({ "env": [{ "valueFrom": { "secretKeyRef": { "name": "s", "key": "k", "optional": true } } }] }),
                vec![],
            ),
        ];
        for (spec, expected) in cases {
            let expected: BTreeMap<String, BTreeSet<String>> = expected
                .into_iter()
                .map(|(name, keys)| (name.to_owned(), keys.into_iter().map(str::to_owned).collect()))
                .collect();
            assert_eq!(of_object(&json!({ "spec": spec })), expected, "{spec}");
        }
    }

    /// The API types name the references of our kinds: none may be missed here.
    #[test]
    fn every_reference_of_our_kinds_is_found() {
        let specs = [
            (
                "Agent",
                json!({ "name": "n", "framework": "corail", "env": [{ "name": "X", "valueFrom": { "secretKeyRef": { "name": "s1", "key": "k" } } }], "envFrom": [{ "secretRef": { "name": "s2" } }] }),
            ),
            ("PluginConfig", json!({ "type": "openai", "credentialsRef": { "name": "s" } })),
            (
                "MCPServer",
                json!({ "transportType": "stdio", "deployment": { "image": "i", "cmd": "c", "secretRefs": [{ "name": "s" }] } }),
            ),
            (
                "RemoteMCPServer",
                json!({ "url": "http://x", "headersFrom": [{ "name": "A", "valueFrom": { "type": "Secret", "name": "s", "key": "k" } }], "tls": { "caSecretRef": { "name": "t" } } }),
            ),
            (
                "Tool",
                json!({ "name": "n", "type": "http", "headersFrom": [{ "name": "A", "secretKeyRef": { "name": "s", "key": "k" } }] }),
            ),
        ];
        for (kind, spec) in specs {
            let object =
                json!({ "apiVersion": "agents.recif.dev/v1", "kind": kind, "metadata": { "name": "x" }, "spec": spec });
            let known = crds::ApiKind::find(kind).unwrap().references(&object);
            let known: BTreeSet<_> =
                known.into_iter().filter(|found| found.kind == crds::RefKind::Secret).map(|found| found.name).collect();
            assert!(!known.is_empty(), "{kind}");
            assert_eq!(of_object(&object).into_keys().collect::<BTreeSet<_>>(), known, "{kind}");
        }
    }

    #[test]
    fn a_secret_of_no_file_is_made_of_the_keys_that_are_asked_for() {
        let found = contents("a.yaml", CONFIG);
        let wanted = wanted(&found.manifests);
        let secrets = make(&wanted, &variables(&["OPENAI_API_KEY", "OTHER"]), ".env");
        let [secret] = secrets.as_slice() else { panic!("{secrets:?}") };
        assert_eq!(secret.keys, ["OPENAI_API_KEY"]);
        assert_eq!(secret.manifest.object["data"], json!({ "OPENAI_API_KEY": "dmFsdWUgb2YgT1BFTkFJX0FQSV9LRVk=" }));
        assert_eq!(secret.manifest.id.to_string(), "secret/openai");
        assert_eq!(make(&wanted, &variables(&["OTHER"]), ".env"), []);
        let object = &found.manifests[0].object;
        assert_eq!(missing_keys(object, "default", &wanted, &variables(&["OTHER"])), ["OPENAI_API_KEY"]);
        assert!(missing_keys(object, "default", &wanted, &variables(&["OPENAI_API_KEY"])).is_empty());
    }

    #[test]
    fn a_whole_secret_gets_all_keys() {
        let found = contents("a.yaml", &CONFIG.replace("  credentialKeys: [OPENAI_API_KEY]\n", ""));
        let wanted = wanted(&found.manifests);
        assert_eq!(make(&wanted, &variables(&["A", "B"]), ".env")[0].keys, ["A", "B"]);
        assert_eq!(missing_keys(&found.manifests[0].object, "default", &wanted, &variables(&[])), ["KEY"]);
    }

    #[test]
    fn a_secret_of_a_file_stays_as_it_is() {
        let text = format!("{CONFIG}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: openai}}\n");
        assert!(wanted(&contents("a.yaml", &text).manifests).is_empty());
    }
}
