//! Reads the end state of a namespace without the parts that differ from run to run: uids, versions, times and values
//! derived from them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::Value;

use crate::script::ScriptNamespace;

/// Kinds of all objects that belong to an agent.
pub(crate) const KINDS: [&str; 9] = [
    "Agent",
    "Tool",
    "Deployment",
    "Service",
    "ConfigMap",
    "Secret",
    "ServiceAccount",
    "NetworkPolicy",
    "PodDisruptionBudget",
];
/// Objects that Kubernetes itself creates in each namespace.
const OF_KUBERNETES: [&str; 2] = ["default", "kube-root-ca.crt"];
/// Fields that differ from run to run.
const FIELDS: [&str; 22] = [
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.creationTimestamp",
    "metadata.generation",
    "metadata.annotations.deployment.kubernetes.io/revision",
    "spec.clusterIP",
    "spec.clusterIPs",
    "status.observedGeneration",
    "status.conditions[].observedGeneration",
    "status.conditions[].lastTransitionTime",
    "status.conditions[].lastUpdateTime",
    "status.children[].uid",
    // Digests that include uids.
    "status.children[].inputs",
    "status.children[].owned",
    "status.inputs.*",
    "status.history",
    "status.lastTransitionTime",
    "status.seq",
    "status.at",
    // Digest of the Deployment, which includes the namespace.
    "status.template",
    // Earlier failures are remembered for ten minutes without a failure.
    "status.failure",
    "status.specDigest",
];

/// Returns the masked objects of a namespace, by kind and name.
pub(crate) async fn masked_state(place: &ScriptNamespace) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    let mut objects = Vec::new();
    for kind in KINDS {
        let listed = place.api(kind).list(&ListParams::default()).await.with_context(|| format!("list {kind}"))?;
        objects.extend(listed.items.into_iter().map(|object| (kind, object)));
    }
    let living: BTreeMap<_, _> = objects
        .iter()
        .map(|(kind, object)| (object.uid().unwrap_or_default(), format!("{kind} {}", object.name_any())))
        .collect();
    for (kind, object) in objects.iter().filter(|(_, object)| !OF_KUBERNETES.contains(&object.name_any().as_str())) {
        let mut value = serde_json::to_value(object)?;
        for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            let uid = owner["uid"].as_str().unwrap_or_default();
            owner["uid"] = living.get(uid).map_or("an object that does not exist", String::as_str).into();
        }
        value["metadata"]["managedFields"] = applied(&value["metadata"]["managedFields"], &living);
        mask(&mut value, "", &place.name);
        all.insert(format!("{kind}/{}", object.name_any()), value);
    }
    Ok(all)
}

/// Returns the fields that each field manager applied.
fn applied(managed: &Value, living: &BTreeMap<String, String>) -> Value {
    let entries = managed.as_array().into_iter().flatten().filter(|entry| entry["operation"] == "Apply");
    let fields = entries.map(|entry| {
        let mut fields = entry["fieldsV1"].to_string();
        for (uid, name) in living {
            fields = fields.replace(uid, name);
        }
        (entry["manager"].to_string(), fields.into())
    });
    Value::Object(fields.collect())
}

/// Removes the fields that differ; `path` is the position of `value`.
fn mask(value: &mut Value, path: &str, namespace: &str) {
    match value {
        Value::Object(fields) => {
            // The key of the sidecar's hooks is derived from the uid.
            if fields.get("name").is_some_and(|name| name == "RECIF_KEY" || name == "X-Recif-Key") {
                fields.remove("value");
            }
            for (field, value) in fields {
                let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                if differs(&path) { *value = Value::Null } else { mask(value, &path, namespace) }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mask(value, &format!("{path}[]"), namespace)),
        Value::String(text) => *text = text.replace(namespace, "NAMESPACE"),
        _ => {}
    }
}

/// Reports whether a field differs from run to run.
fn differs(path: &str) -> bool {
    FIELDS.iter().any(|field| match field.strip_suffix('*') {
        Some(all) => path.starts_with(all),
        None => path == *field,
    })
}

/// Returns the first difference of two end states.
pub(crate) fn difference(expected: &BTreeMap<String, Value>, found: &BTreeMap<String, Value>) -> Option<String> {
    let missing = expected.keys().find(|key| !found.contains_key(*key)).map(|key| format!("{key} is missing"));
    let surplus = found.keys().find(|key| !expected.contains_key(*key)).map(|key| format!("{key} is left over"));
    missing.or(surplus).or_else(|| expected.iter().find_map(|(key, value)| compare(key, value, &found[key])))
}

fn compare(path: &str, expected: &Value, found: &Value) -> Option<String> {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<_> = one.keys().chain(other.keys()).collect();
            keys.sort();
            keys.dedup();
            let of =
                |fields: &serde_json::Map<String, Value>, key: &String| fields.get(key).cloned().unwrap_or_default();
            keys.into_iter().find_map(|key| compare(&format!("{path}.{key}"), &of(one, key), &of(other, key)))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs.into_iter().find_map(|(at, (one, other))| compare(&format!("{path}[{at}]"), one, other))
        }
        _ => (expected != found).then(|| format!("{path} is {found}, undisturbed {expected}")),
    }
}
