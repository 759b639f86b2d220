//! Patches: [RFC 6902](https://www.rfc-editor.org/rfc/rfc6902) (JSON Patch), where `test` takes null as missing, as in the API
//! server; [RFC 7386](https://www.rfc-editor.org/rfc/rfc7386) (JSON merge patch); and strategic merge patches of maps.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::{
    bodies::MAX_BODY,
    errors::StatusError,
    kinds::{Kind, Shape},
};

/// Most operations of one JSON Patch.
const MAX_OPERATIONS: usize = 10_000;

/// Accepted forms of a patch, for the message on another one.
pub(crate) const MEDIA_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// Form of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// JSON Patch.
    Json,
    /// JSON merge patch.
    Merge,
    /// Strategic merge patch.
    Strategic,
    /// Configuration for server-side apply.
    Apply,
}

impl PatchType {
    /// Returns the form by the media type, with or without parameters. Custom resources have no strategic patches.
    ///
    /// # Errors
    /// 415 for another type.
    pub(crate) fn of(media_type: &str, kind: &Kind) -> Result<Self, StatusError> {
        let is_custom = matches!(kind.shape, Shape::Custom { .. });
        match media_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ if is_custom => Err(StatusError::unsupported_media_type(MEDIA_TYPES)),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            _ => Err(StatusError::unsupported_patch()),
        }
    }
}

/// Applies a JSON Patch.
///
/// # Errors
/// 400 for a text that is none, 413 for too many operations, 422 if one of them cannot be applied, or they copy more than
/// [`MAX_BODY`].
pub(crate) fn json_patch(object: &Value, patch: &[u8]) -> Result<Value, StatusError> {
    let patch: Patch = serde_json::from_slice(patch).map_err(|error| StatusError::bad_request(error.to_string()))?;
    if patch.0.len() > MAX_OPERATIONS {
        let count = patch.0.len();
        let message = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(StatusError::too_large(message));
    }
    let mut object = object.clone();
    let mut copied = 0;
    for operation in &patch.0 {
        if let PatchOperation::Copy(copy) = operation {
            copied += object.pointer(copy.from.as_str()).map_or(0, |value| value.to_string().len());
            if copied > MAX_BODY {
                return Err(StatusError::patch_failed());
            }
        }
        if !is_test_of_a_missing_field(&object, operation) {
            json_patch::patch(&mut object, std::slice::from_ref(operation)).map_err(|_| StatusError::patch_failed())?;
        }
    }
    Ok(object)
}

/// Reports whether an operation tests that a field is null which is not there, in an object that is there.
fn is_test_of_a_missing_field(object: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let Some((parent, last)) = test.path.split_back() else { return false };
    let fields = object.pointer(parent.as_str()).and_then(Value::as_object);
    test.value.is_null() && fields.is_some_and(|fields| !fields.contains_key(last.decoded().as_ref()))
}

/// Applies a JSON merge patch.
///
/// # Errors
/// 400 for a text that is no object.
pub(crate) fn merge_patch(object: &Value, patch: &[u8]) -> Result<Value, StatusError> {
    let patch = read_object(patch)?;
    let mut object = object.clone();
    json_patch::merge(&mut object, &patch);
    Ok(object)
}

/// Applies a strategic merge patch that has no lists and no directives: it is a JSON merge patch.
///
/// # Errors
/// 400 for a text that is no object, 415 if it has lists or directives.
pub(crate) fn strategic_patch(object: &Value, patch: &[u8]) -> Result<Value, StatusError> {
    if is_of_maps(&read_object(patch)?) { merge_patch(object, patch) } else { Err(StatusError::strategic_lists()) }
}

fn read_object(patch: &[u8]) -> Result<Value, StatusError> {
    let patch: Value = serde_json::from_slice(patch).map_err(|error| StatusError::bad_request(error.to_string()))?;
    if patch.is_object() { Ok(patch) } else { Err(StatusError::bad_request("Invalid JSON Patch")) }
}

fn is_of_maps(patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.iter().all(|(name, value)| !name.starts_with('$') && is_of_maps(value)),
        Value::Array(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_rfc_6902_hold() {
        let qux = json!({"baz": "qux", "foo": "bar"});
        let keys = json!({"/": 9, "~1": 10});
        for (example, object, patch, expected) in [
            ("A.1", json!({"foo": "bar"}), json!([{"op": "add", "path": "/baz", "value": "qux"}]), Some(qux.clone())),
            (
                "A.2",
                json!({"foo": ["bar", "baz"]}),
                json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
                Some(json!({"foo": ["bar", "qux", "baz"]})),
            ),
            ("A.3", qux.clone(), json!([{"op": "remove", "path": "/baz"}]), Some(json!({"foo": "bar"}))),
            (
                "A.4",
                json!({"foo": ["bar", "qux", "baz"]}),
                json!([{"op": "remove", "path": "/foo/1"}]),
                Some(json!({"foo": ["bar", "baz"]})),
            ),
            (
                "A.5",
                qux.clone(),
                json!([{"op": "replace", "path": "/baz", "value": "boo"}]),
                Some(json!({"baz": "boo", "foo": "bar"})),
            ),
            (
                "A.6",
                json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}),
                json!([{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]),
                Some(json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}})),
            ),
            (
                "A.7",
                json!({"foo": ["all", "grass", "cows", "eat"]}),
                json!([{"op": "move", "from": "/foo/1", "path": "/foo/3"}]),
                Some(json!({"foo": ["all", "cows", "eat", "grass"]})),
            ),
            (
                "A.8",
                json!({"baz": "qux", "foo": ["a", 2, "c"]}),
                json!([{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}]),
                Some(json!({"baz": "qux", "foo": ["a", 2, "c"]})),
            ),
            ("A.9", json!({"baz": "qux"}), json!([{"op": "test", "path": "/baz", "value": "bar"}]), None),
            (
                "A.10",
                json!({"foo": "bar"}),
                json!([{"op": "add", "path": "/child", "value": {"grandchild": {}}}]),
                Some(json!({"foo": "bar", "child": {"grandchild": {}}})),
            ),
            (
                "A.11",
                json!({"foo": "bar"}),
                json!([{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}]),
                Some(qux),
            ),
            ("A.12", json!({"foo": "bar"}), json!([{"op": "add", "path": "/baz/bat", "value": "qux"}]), None),
            ("A.14", keys.clone(), json!([{"op": "test", "path": "/~01", "value": 10}]), Some(keys.clone())),
            ("A.15", keys, json!([{"op": "test", "path": "/~01", "value": "10"}]), None),
            (
                "A.16",
                json!({"foo": ["bar"]}),
                json!([{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}]),
                Some(json!({"foo": ["bar", ["abc", "def"]]})),
            ),
        ] {
            assert_eq!(json_patch(&object, patch.to_string().as_bytes()).ok(), expected, "{example}");
        }
        // A.13: of two members of one name none is chosen.
        let twice = br#"[{"op": "add", "path": "/baz", "value": "qux", "op": "remove"}]"#;
        assert!(json_patch(&json!({"foo": "bar"}), twice).is_err());
    }

    #[test]
    fn the_examples_of_rfc_7386_hold() {
        for (object, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), Some(json!({"a": "c"}))),
            (json!({"a": "b"}), json!({"b": "c"}), Some(json!({"a": "b", "b": "c"}))),
            (json!({"a": "b"}), json!({"a": null}), Some(json!({}))),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), Some(json!({"b": "c"}))),
            (json!({"a": ["b"]}), json!({"a": "c"}), Some(json!({"a": "c"}))),
            (json!({"a": "c"}), json!({"a": ["b"]}), Some(json!({"a": ["b"]}))),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), Some(json!({"a": {"b": "d"}}))),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), Some(json!({"a": [1]}))),
            (json!({"e": null}), json!({"a": 1}), Some(json!({"e": null, "a": 1}))),
            (json!([1, 2]), json!({"a": "b", "c": null}), Some(json!({"a": "b"}))),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), Some(json!({"a": {"bb": {}}}))),
            // Patches that would replace the object as a whole are refused, as by the real API server.
            (json!(["a", "b"]), json!(["c", "d"]), None),
            (json!({"a": "b"}), json!(["c"]), None),
            (json!({"a": "foo"}), json!(null), None),
            (json!({"a": "foo"}), json!("bar"), None),
        ] {
            assert_eq!(merge_patch(&object, patch.to_string().as_bytes()).ok(), expected, "{object} {patch}");
        }
    }
}
