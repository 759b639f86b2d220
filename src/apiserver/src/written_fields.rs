//! What a write may set: fields that the schema knows, the uid and version that there are, and nothing that is the system's.

use serde_json::Value;

use crate::{
    admission,
    errors::{INVALID, MODIFIED, StatusError, Violation},
    kinds::Kind,
    object::{self, fields, number, set_field, set_metadata, text, uid},
    options::{FieldValidation, WriteOptions},
};

/// Fields of metadata that a write cannot change.
const KEPT: &[&str] =
    &["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

/// Lets the schema complete an object, and returns warnings of unknown fields.
pub(crate) fn admit(kind: &Kind, object: &mut Value, options: &WriteOptions) -> Result<Vec<String>, StatusError> {
    let refused = |why: String| {
        let (name, version) = (kind.name, kind.version);
        StatusError::bad_request(format!("{name} in version {version:?} cannot be handled as a {name}: {why}"))
    };
    let unknown = admission::admit(kind, object).map_err(refused)?;
    warnings(unknown, options.validation).map_err(refused)
}

/// Returns warnings of unknown fields.
///
/// # Errors
/// That they are refused.
pub(crate) fn warnings(unknown: Vec<String>, validation: FieldValidation) -> Result<Vec<String>, String> {
    let texts: Vec<String> = unknown.into_iter().map(|path| format!("unknown field {path:?}")).collect();
    match validation {
        FieldValidation::Strict if !texts.is_empty() => Err(format!("strict decoding error: {}", texts.join(", "))),
        FieldValidation::Ignore => Ok(Vec::new()),
        _ => Ok(texts),
    }
}

/// Checks the uid and version that the new object names.
pub(crate) fn check_preconditions(kind: &Kind, old: &Value, new: &Value) -> Result<(), StatusError> {
    let name = object::name(old);
    let wanted = uid(new);
    if !wanted.is_empty() && wanted != uid(old) {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {}", uid(old));
        return Err(StatusError::conflict(kind, name, &why));
    }
    match text(new, "/metadata/resourceVersion") {
        "" | "0" if kind.traits.unconditional => Ok(()),
        "" | "0" => {
            let message = "Invalid value: 0: must be specified for an update".to_owned();
            let error = Violation { reason: INVALID, field: "metadata.resourceVersion".to_owned(), message };
            Err(StatusError::invalid(kind.group, kind.plural, name, &[error]))
        }
        version if version != text(old, "/metadata/resourceVersion") => {
            Err(StatusError::conflict(kind, name, MODIFIED))
        }
        _ => Ok(()),
    }
}

/// Restores what this request cannot change: system fields, and the status or everything but the status.
pub(crate) fn prepare(kind: &Kind, subresource: &str, old: &Value, new: &mut Value) {
    let managed = new.pointer("/metadata/managedFields").cloned();
    if subresource == "status" {
        let status = fields(new).remove("status");
        *new = old.clone();
        set_field(new, "status", status);
        set_metadata(new, "managedFields", managed);
        return;
    }
    for name in KEPT.iter().chain(&["resourceVersion"]) {
        set_metadata(new, name, old.pointer(&format!("/metadata/{name}")).cloned());
    }
    if kind.traits.status {
        set_field(new, "status", old.get("status").cloned());
    }
    if kind.traits.generation {
        let reduced = |object: &Value| {
            let mut object = object.clone();
            fields(&mut object).retain(|name, _| name != "metadata" && (name != "status" || !kind.traits.status));
            object
        };
        if reduced(old) != reduced(new) {
            let generation = number(old, "/metadata/generation").unwrap_or_default() + 1;
            set_metadata(new, "generation", Some(generation.into()));
        }
    }
}
