//! The end state of a namespace without what differs from run to run: uids, versions, times, and what is made of them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::Value;

use crate::script::Place;

/// Every kind that an agent touches.
pub(crate) const KINDS: [&str; 8] =
    ["Agent", "Tool", "Deployment", "Service", "ConfigMap", "Secret", "ServiceAccount", "NetworkPolicy"];
/// What Kubernetes itself puts into each namespace.
const OF_KUBERNETES: [&str; 2] = ["default", "kube-root-ca.crt"];
/// Fields that differ, wherever they stand.
const FIELDS: [&str; 16] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "observedGeneration",
    "lastTransitionTime",
    "seq",
    "history",
    "clusterIP",
    "clusterIPs",
    "at",
    "deployment.kubernetes.io/revision",
    "children",
    "lastUpdateTime",
    "inputs",
];

/// The objects of a namespace, by kind and name.
pub(crate) async fn of(place: &Place) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for kind in KINDS {
        let listed = place.api(kind).list(&ListParams::default()).await.with_context(|| format!("list {kind}"))?;
        for object in listed.items.iter().filter(|object| !OF_KUBERNETES.contains(&object.name_any().as_str())) {
            let mut value = serde_json::to_value(object)?;
            if let Some(status) = value["status"].as_object_mut() {
                // A digest of what the Deployment holds, in which the namespace stands too.
                status.remove("template");
                // Earlier failures are remembered for ten good minutes.
                status.remove("failure");
            }
            mask(&mut value, &place.name);
            all.insert(format!("{kind}/{}", object.name_any()), value);
        }
    }
    Ok(all)
}

fn mask(value: &mut Value, namespace: &str) {
    match value {
        Value::Object(fields) => {
            // The key of the sidecar's hooks is made of the uid.
            if fields.get("name").is_some_and(|name| name == "RECIF_KEY" || name == "X-Recif-Key") {
                fields.remove("value");
            }
            fields.retain(|field, _| !FIELDS.contains(&field.as_str()));
            fields.values_mut().for_each(|value| mask(value, namespace));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mask(value, namespace)),
        Value::String(text) => *text = text.replace(namespace, "NAMESPACE"),
        _ => {}
    }
}

/// The first place at which two end states differ.
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
