//! Builds JSON Patches ([RFC 6902](https://www.rfc-editor.org/rfc/rfc6902)) that hold only the changed fields, with `test`
//! operations for optimistic concurrency.
//!
//! There is no `resourceVersion` in them: another client that patches labels or other status fields neither conflicts with the
//! operator nor loses its change. The tests make the API server reject a step that is based on an old object as a whole.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// Returns the patch that turns the status `before` into `after`, or `None` if they are equal. The unit of the difference is a
/// top-level field.
pub(super) fn status_patch(meta: &ObjectMeta, before: Value, after: Value) -> Option<Value> {
    let there = !before.is_null();
    let (old, new) = (fields(before), fields(after));
    let mut patch = vec![
        operation("test", "/metadata/uid", json!(meta.uid)),
        operation("test", "/metadata/generation", json!(meta.generation)),
    ];
    if !there {
        // The `test` operation treats null and a missing field alike.
        patch.push(operation("test", "/status", Value::Null));
        let any = !new.is_empty();
        patch.push(operation("add", "/status", Value::Object(new)));
        return any.then_some(Value::Array(patch));
    }
    let as_read = |field: &str| old.get(field).cloned().unwrap_or_default();
    patch.push(operation("test", "/status/phase", as_read("phase")));
    if old.get("conditions") != new.get("conditions") {
        patch.push(operation("test", "/status/conditions", as_read("conditions")));
    }
    let tests = patch.len();
    let gone: Vec<_> = old.keys().filter(|field| !new.contains_key(*field)).collect();
    for (field, value) in new {
        if old.get(&field) != Some(&value) {
            patch.push(operation("add", &format!("/status/{field}"), value));
        }
    }
    patch.extend(gone.into_iter().map(|field| json!({"op": "remove", "path": format!("/status/{field}")})));
    (patch.len() > tests).then_some(Value::Array(patch))
}

fn fields(value: Value) -> Map<String, Value> {
    if let Value::Object(fields) = value { fields } else { Map::new() }
}

/// Builds one operation of a patch by moving the value into it: `json!` would copy it.
fn operation(op: &str, path: &str, value: Value) -> Value {
    let mut operation = json!({"op": op, "path": path});
    operation["value"] = value;
    operation
}

/// Returns the patch of labels, annotations and finalizers, or `None` if they are equal.
pub(super) fn metadata_patch(before: &ObjectMeta, after: &ObjectMeta) -> Option<Value> {
    let mut changes = Vec::new();
    map_changes("labels", before.labels.as_ref(), after.labels.as_ref(), &mut changes);
    map_changes("annotations", before.annotations.as_ref(), after.annotations.as_ref(), &mut changes);
    if before.finalizers != after.finalizers {
        let path = "/metadata/finalizers";
        changes.push(json!({"op": "test", "path": path, "value": before.finalizers}));
        changes.push(match after.finalizers.as_deref() {
            None | Some([]) => json!({"op": "remove", "path": path}),
            Some(list) => json!({"op": "add", "path": path, "value": list}),
        });
    }
    if changes.is_empty() {
        return None;
    }
    changes.insert(0, json!({"op": "test", "path": "/metadata/uid", "value": before.uid}));
    Some(Value::Array(changes))
}

fn map_changes(
    field: &str,
    before: Option<&BTreeMap<String, String>>,
    after: Option<&BTreeMap<String, String>>,
    changes: &mut Vec<Value>,
) {
    let empty = BTreeMap::new();
    let (old, new) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    if old == new {
        return;
    }
    if before.is_none() {
        changes.push(json!({"op": "add", "path": format!("/metadata/{field}"), "value": new}));
        return;
    }
    let path = |key: &str| format!("/metadata/{field}/{}", key.replace('~', "~0").replace('/', "~1"));
    for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(value)) {
        changes.push(json!({"op": "add", "path": path(key), "value": value}));
    }
    // What another client has set meanwhile is not removed.
    for (key, value) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
        changes.push(json!({"op": "test", "path": path(key), "value": value}));
        changes.push(json!({"op": "remove", "path": path(key)}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> ObjectMeta {
        ObjectMeta { uid: Some("u".into()), generation: Some(3), ..ObjectMeta::default() }
    }

    #[test]
    fn equal_statuses_make_no_patch() {
        assert_eq!(status_patch(&meta(), json!({"phase": "Running"}), json!({"phase": "Running"})), None);
        assert_eq!(metadata_patch(&meta(), &meta()), None);
    }

    #[test]
    fn a_first_status_is_added_whole() {
        let patch = status_patch(&meta(), Value::Null, json!({"phase": "Pending"})).expect("a patch");
        assert_eq!(
            patch,
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/generation", "value": 3},
                {"op": "test", "path": "/status", "value": null},
                {"op": "add", "path": "/status", "value": {"phase": "Pending"}},
            ])
        );
    }

    #[test]
    fn only_changed_fields_are_sent_and_conditions_are_tested() {
        let before = json!({"phase": "A", "replicas": 1, "conditions": [1], "foreign": true});
        let after = json!({"phase": "B", "replicas": 1, "conditions": [2], "foreign": true});
        let patch = status_patch(&meta(), before, after).expect("a patch");
        assert_eq!(
            patch.as_array().expect("a list")[2..],
            [
                json!({"op": "test", "path": "/status/phase", "value": "A"}),
                json!({"op": "test", "path": "/status/conditions", "value": [1]}),
                json!({"op": "add", "path": "/status/conditions", "value": [2]}),
                json!({"op": "add", "path": "/status/phase", "value": "B"}),
            ]
        );
    }

    #[test]
    fn a_status_without_phase_is_tested_for_its_absence() {
        let patch = status_patch(&meta(), json!({"x": 1}), json!({"x": 1, "phase": "B"})).expect("a patch");
        assert_eq!(patch[2], json!({"op": "test", "path": "/status/phase", "value": null}));
    }

    #[test]
    fn the_last_finalizer_goes_guarded_by_the_list_as_read() {
        let before = ObjectMeta { finalizers: Some(vec!["recif.dev/cleanup".into()]), ..meta() };
        let patch = metadata_patch(&before, &meta()).expect("a patch");
        assert_eq!(
            patch,
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/finalizers", "value": ["recif.dev/cleanup"]},
                {"op": "remove", "path": "/metadata/finalizers"},
            ])
        );
    }

    #[test]
    fn annotation_keys_are_escaped() {
        let with =
            |key: &str| ObjectMeta { annotations: Some(BTreeMap::from([(key.to_owned(), "x".to_owned())])), ..meta() };
        let patch = metadata_patch(&with("a"), &with("recif.dev/b~c")).expect("a patch");
        assert_eq!(patch[1]["path"], "/metadata/annotations/recif.dev~1b~0c");
        assert_eq!(patch[2], json!({"op": "test", "path": "/metadata/annotations/a", "value": "x"}));
        assert_eq!(patch[3], json!({"op": "remove", "path": "/metadata/annotations/a"}));
    }
}
