//! Bodies of requests: how large they may be, of which type they must be, and what they must name.

use serde_json::{Value, json};

use crate::{
    errors::StatusError,
    kinds::{Kind, Shape},
    object::{self, set_field, text},
    target::Target,
};

/// Largest body of a request, in bytes; a JSON Patch copies no more than this either.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;
/// Media type of the bodies that kubectl makes itself, without a manifest.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Bytes of a body that a message about it repeats.
const SUMMARY: usize = 30;

/// Reads a body of a kind in JSON or YAML. A review that is answered whatever it asks may have any other form, too.
///
/// # Errors
/// 400 for a text that is none, 415 for another media type.
pub(crate) fn read_body(kind: &Kind, media_type: &str, body: &[u8]) -> Result<Value, StatusError> {
    match media_type.split(';').next().unwrap_or_default().trim() {
        "application/json" | "" => {
            serde_json::from_slice(body).map_err(|error| StatusError::bad_request(error.to_string()))
        }
        "application/yaml" => serde_yaml::from_slice(body).map_err(|error| StatusError::bad_request(error.to_string())),
        _ if matches!(kind.shape, Shape::Review) && kind.name != "TokenReview" => Ok(json!({})),
        PROTOBUF => Err(StatusError::protobuf()),
        _ => Err(StatusError::unsupported_media_type("application/json, application/yaml")),
    }
}

/// Checks that an object names the namespace that the request names, or none. Objects that are in none may name any.
///
/// # Errors
/// 400 for another namespace.
pub(crate) fn check_namespace(target: &Target, object: &Value) -> Result<(), StatusError> {
    let namespace = text(object, "/metadata/namespace");
    if namespace.is_empty() || target.namespace.is_empty() || namespace == target.namespace {
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    Err(StatusError::bad_request(message))
}

/// Checks that a new or patched object names the object that the request names.
///
/// # Errors
/// 400 for another namespace, another name or none.
pub(crate) fn check_name(target: &Target, object: &Value) -> Result<(), StatusError> {
    check_namespace(target, object)?;
    let (given, wanted) = (object::name(object), &target.name);
    if given.is_empty() {
        let message =
            format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided");
        return Err(StatusError::bad_request(message));
    }
    if given != wanted {
        let message = format!("the name of the object ({given}) does not match the name on the URL ({wanted})");
        return Err(StatusError::bad_request(message));
    }
    Ok(())
}

/// Returns a body as an object of the kind; `apiVersion` and `kind` may be left out, but for `kind` of ours.
///
/// # Errors
/// 400 for a body of another kind or version.
pub(crate) fn expect_kind(kind: &Kind, body: Value) -> Result<Value, StatusError> {
    let must_name_kind = matches!(kind.shape, Shape::Custom { .. });
    let unnamed = (must_name_kind && text(&body, "/kind").is_empty()).then(|| body.to_string());
    let object = expect_type(&kind.api_version(), kind.name, body)?;
    let Some(whole) = unnamed else { return Ok(object) };
    let short: String = whole.chars().take(SUMMARY).collect();
    let short = if short == whole { short } else { format!("{short} ...") };
    let missing = format!("Object 'Kind' is missing in '{whole}' ({short})");
    let message = format!("the object provided is unrecognized (must be of type {}): {missing}", kind.name);
    Err(StatusError::bad_request(message))
}

/// Returns a body as an object of a type; `apiVersion` and `kind` may be left out.
///
/// # Errors
/// 400 for a body of another kind or version.
pub(crate) fn expect_type(api_version: &str, kind: &str, mut body: Value) -> Result<Value, StatusError> {
    if !body.is_object() {
        let message = format!("the object provided is unrecognized (must be of type {kind}): no object");
        return Err(StatusError::bad_request(message));
    }
    let (given, name) = (text(&body, "/apiVersion"), text(&body, "/kind"));
    if !given.is_empty() && given != api_version {
        let message =
            format!("the API version in the data ({given}) does not match the expected API version ({api_version})");
        return Err(StatusError::bad_request(message));
    }
    if !name.is_empty() && name != kind {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let message = format!("{name} in version {version:?} cannot be handled as a {kind}: it is of another kind");
        return Err(StatusError::bad_request(message));
    }
    set_field(&mut body, "apiVersion", Some(api_version.into()));
    set_field(&mut body, "kind", Some(kind.into()));
    Ok(body)
}
