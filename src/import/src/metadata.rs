//! Metadata of objects of ours, and objects that stay as they are.

use serde_json::{Map, Value, json};

use crate::subject::Subject;

/// Kinds of the core API that are printed as they are.
const PASSED_ON: [&str; 4] = ["Namespace", "ServiceAccount", "Secret", "ConfigMap"];
/// Labels and annotations of tools that keep track of what they applied.
const TRACKING: [&str; 3] = ["kubectl.kubernetes.io/", "meta.helm.sh/", "argocd.argoproj.io/"];
/// Fields of the metadata that the API server sets.
const SERVER_SET: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
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

/// Returns an object without its status and what the API server set, with which it could not be applied again.
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

/// Prints an object of no source as it is, if ours may need it.
pub(crate) fn pass_on(subject: &Subject<'_>) {
    let api_version = subject.object["apiVersion"].as_str();
    if api_version == Some("v1") && PASSED_ON.contains(&subject.id.kind.as_str()) {
        subject.emit_as_is(&without_server_set(subject.object));
        return;
    }
    let api_version = api_version.unwrap_or_default();
    let why = match crate::source::Source::ALL.iter().find(|source| source.group() == subject.id.group) {
        Some(source) => format!("{source} has no version {api_version} that is known here"),
        None => "is of no source".to_owned(),
    };
    subject.notes.skip("", why);
}

/// Returns the kind of an object that is ours already.
pub(crate) fn own_kind(object: &Value) -> &'static [&'static str] {
    let found = crds::KINDS.iter().find(|kind| object["kind"] == kind.name);
    found.map_or(&[], |kind| std::slice::from_ref(&kind.name))
}
