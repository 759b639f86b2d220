//! Metadata of objects of ours, and of those that stay as they are.

use serde_json::{Map, Value, json};

/// Labels and annotations of tools that keep track of what they applied.
const TRACKING: [&str; 3] = ["kubectl.kubernetes.io/", "meta.helm.sh/", "argocd.argoproj.io/"];
/// Fields of the metadata that the API server and controllers set. An owner is known by its uid: in another cluster, or once it is gone,
/// the garbage collector would delete what it owns.
const SERVER_SET: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Returns the metadata of what an object becomes.
pub(crate) fn of(object: &Value, name: &str) -> Value {
    let given = &object["metadata"];
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = given["namespace"].as_str().filter(|namespace| !namespace.is_empty()) {
        metadata["namespace"] = namespace.into();
    }
    for field in ["labels", "annotations"] {
        let entries = given[field].as_object().into_iter().flatten();
        let kept: Map<_, _> = entries
            .filter(|(key, value)| value.is_string() && !is_tracking(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !kept.is_empty() {
            metadata[field] = Value::Object(kept);
        }
    }
    metadata
}

fn is_tracking(key: &str) -> bool {
    key == "app.kubernetes.io/managed-by" || TRACKING.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns an object without its status and what the API server and controllers set, with which it could not be applied again.
pub(crate) fn without_server_set(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !SERVER_SET.contains(&key.as_str()));
    }
    object
}

/// Returns the kind of an object that is ours already.
pub(crate) fn own_kind(object: &Value) -> &'static [&'static str] {
    let found = crds::KINDS.iter().find(|kind| object["kind"] == kind.name);
    found.map_or(&[], |kind| std::slice::from_ref(&kind.name))
}
