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
