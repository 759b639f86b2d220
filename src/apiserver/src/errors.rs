//! Failures as the API server words them: a [`Status`](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/)
//! with code, reason, message and details.

use http::StatusCode;
use serde_json::{Value, json};

use crate::{kinds::Kind, schema::FieldError};

/// Message of a conflict of versions.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Reasons of causes.
pub(crate) const REQUIRED: &str = "FieldValueRequired";
pub(crate) const INVALID: &str = "FieldValueInvalid";
pub(crate) const FORBIDDEN: &str = "FieldValueForbidden";
pub(crate) const DUPLICATE: &str = "FieldValueDuplicate";
pub(crate) const NOT_FOUND: &str = "FieldValueNotFound";
pub(crate) const NOT_SUPPORTED: &str = "FieldValueNotSupported";

/// Violation at one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Reason, as in the causes of a Status.
    pub(crate) reason: &'static str,
    /// Path of the field.
    pub(crate) field: String,
    /// Message, without the path.
    pub(crate) message: String,
}

impl From<FieldError> for Violation {
    fn from(error: FieldError) -> Self {
        Self { reason: error.kind.reason(), field: error.field, message: error.message }
    }
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StatusError {
    /// Code of the response.
    pub(crate) code: StatusCode,
    /// Reason as a CamelCase word; empty if there is none.
    pub(crate) reason: &'static str,
    /// Message for people.
    pub(crate) message: String,
    /// Details; an empty object if there are none.
    pub(crate) details: Value,
}

impl StatusError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    /// Adds details.
    fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// Returns the Status object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }

    /// Something in the request cannot be read.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// There is no object of this name.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(details(kind, name))
    }

    /// There is an object of this name.
    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with(details(kind, name))
    }

    /// The object is another one than the request expects.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(details(kind, name))
    }

    /// The object is another one than the options of its deletion expect; the kind stands in the place of the resource.
    pub(crate) fn conflict_of_kind(kind: &Kind, name: &str, why: &str) -> Self {
        let subject =
            if kind.group.is_empty() { kind.name.to_owned() } else { format!("{}.{}", kind.name, kind.group) };
        let mut details = json!({ "kind": kind.name, "name": name });
        set(&mut details, "group", kind.group);
        let message = format!("Operation cannot be fulfilled on {subject} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(details)
    }

    /// Fields of an apply belong to other managers.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(json!({ "causes": causes }))
    }

    /// A namespace is being deleted, so nothing is created in it.
    pub(crate) fn namespace_terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let message = format!(
            "{} \"{name}\" is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
            kind.resource()
        );
        let mut details = details(kind, name);
        details["causes"] = json!([{
            "reason": "NamespaceTerminating", "field": "metadata.namespace",
            "message": format!("namespace {namespace} is being terminated"),
        }]);
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with(details)
    }

    /// A namespace that is always there cannot be deleted.
    pub(crate) fn namespace_stays(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: this namespace may not be deleted", kind.resource());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with(details(kind, name))
    }

    /// An object violates its schema or the rules of metadata.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[Violation]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = format!("{}: {}", error.field, error.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let texts = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let subject = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({ "reason": error.reason, "message": error.message, "field": error.field }))
            .collect();
        let mut details = json!({ "kind": kind, "causes": causes });
        set(&mut details, "name", name);
        set(&mut details, "group", group);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", format!("{subject} \"{name}\" is invalid: {texts}"))
            .with(details)
    }

    /// A JSON Patch cannot be applied; which of its steps failed is not said.
    pub(crate) fn patch_failed() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(json!({}))
    }

    /// A patched object is none of its kind.
    pub(crate) fn invalid_patch(object: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {:?}: {why}", object.to_string());
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", format!(" \"\" is invalid: patch: {message}"))
            .with(json!({ "causes": [{ "reason": INVALID, "field": "patch", "message": message }] }))
    }

    /// A document is larger than the server accepts.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        let message = format!("Request entity is too large: {}", message.into());
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The resource has no such verb.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(json!({}))
    }

    /// A body has a media type that is not read here.
    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// A patch has a media type that is not read here.
    pub(crate) fn unsupported_patch() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message).with(json!({}))
    }

    /// A body is in protobuf.
    pub(crate) fn protobuf() -> Self {
        let message = "protobuf is not read here: use a manifest, as in kubectl create ... --dry-run=client -o yaml | kubectl \
                       apply -f -";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// A strategic merge patch has lists or directives.
    pub(crate) fn strategic_lists() -> Self {
        let message = "strategic merge patches of lists are not supported here: use kubectl apply --server-side, or kubectl \
                       patch --type merge or json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The node does not have a Pod whose log is asked for.
    pub(crate) fn log_not_found(pod: &str) -> Self {
        let message = format!("the server could not find the requested resource ( pods/log {pod})");
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(json!({ "name": pod, "kind": "pods/log" }))
    }

    /// The changes after `wanted` are not kept any more.
    pub(crate) fn expired(wanted: u64, oldest: u64) -> Self {
        Self::new(StatusCode::GONE, "Expired", format!("too old resource version: {wanted} ({oldest})"))
    }

    /// A list is asked for in a version of the future.
    pub(crate) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        }))
    }

    /// The server refuses, and has no reason for machines.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }
}

/// Sets a text, unless it is empty.
fn set(object: &mut Value, field: &str, text: &str) {
    if !text.is_empty() {
        object[field] = text.into();
    }
}

/// Returns details that name an object.
pub(crate) fn details(kind: &Kind, name: &str) -> Value {
    let mut details = json!({ "kind": kind.plural });
    set(&mut details, "name", name);
    set(&mut details, "group", kind.group);
    details
}
