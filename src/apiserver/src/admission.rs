//! Admission of an object before it is stored: unknown fields and nulls go, defaults come, and rules are checked. Objects of
//! our kinds are judged by their schemas, the others by the types of k8s-openapi.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    defaults,
    errors::{StatusError, Violation},
    kinds::{Kind, Shape},
    object::{fields, remove_nulls, set_field, set_metadata},
    valid,
};

/// Removes nulls and unknown fields, and sets defaults. Returns the paths of the unknown fields. The owners of fields stay as they
/// are.
///
/// # Errors
/// Why it is no object of this kind: a field has another type.
pub(crate) fn admit(kind: &Kind, object: &mut Value) -> Result<Vec<String>, String> {
    let managed = object.pointer("/metadata/managedFields").cloned();
    let unknown = admit_fields(kind, object)?;
    set_metadata(object, "managedFields", managed);
    Ok(unknown)
}

fn admit_fields(kind: &Kind, object: &mut Value) -> Result<Vec<String>, String> {
    match &kind.shape {
        Shape::BuiltIn(typed) => {
            remove_nulls(object);
            let known = typed(object.clone())?;
            let mut unknown = Vec::new();
            add_unknown("", object, &known, &mut unknown);
            *object = known;
            defaults::fill(kind.name, object);
            Ok(unknown)
        }
        Shape::Custom { .. } => {
            let metadata = fields(object).remove("metadata").unwrap_or_default();
            let mut unknown = Vec::new();
            let metadata = metadata_of(metadata, &mut unknown)?;
            let types = ["apiVersion", "kind"].map(|name| (name, fields(object).remove(name)));
            if let Some(schema) = kind.schema() {
                unknown.extend(schema?.admit(object));
            }
            for (name, value) in types {
                set_field(object, name, value);
            }
            set_field(object, "metadata", Some(metadata));
            defaults::fill(kind.name, object);
            Ok(unknown)
        }
        Shape::Review => Ok(Vec::new()),
    }
}

/// Reads metadata by its type, and adds the paths of unknown fields.
fn metadata_of(mut metadata: Value, unknown: &mut Vec<String>) -> Result<Value, String> {
    remove_nulls(&mut metadata);
    let typed: ObjectMeta = match &metadata {
        Value::Null => ObjectMeta::default(),
        metadata => serde_json::from_value(metadata.clone()).map_err(|error| error.to_string())?,
    };
    let known = serde_json::to_value(typed).map_err(|error| error.to_string())?;
    add_unknown("metadata", &metadata, &known, unknown);
    Ok(known)
}

/// Adds the paths of the fields that a type has dropped.
fn add_unknown(path: &str, given: &Value, known: &Value, unknown: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(known) => add_unknown(&path, value, known, unknown),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (index, (value, known)) in given.iter().zip(known).enumerate() {
                add_unknown(&format!("{path}[{index}]"), value, known, unknown);
            }
        }
        _ => {}
    }
}

/// Checks the rules, also those on the change from `old`.
///
/// # Errors
/// 422 with every violation.
pub(crate) fn validate(kind: &Kind, object: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    let mut errors: Vec<Violation> = valid::metadata(kind, object, old);
    match kind.schema() {
        Some(schema) => {
            let schema = schema.map_err(StatusError::unknown)?;
            errors.extend(schema.validate(object, old).into_iter().map(Violation::from));
        }
        None => errors.extend(valid::built_in(kind.name, object, old)),
    }
    let name = crate::object::name(object);
    if errors.is_empty() { Ok(()) } else { Err(StatusError::invalid(kind.group, kind.name, name, &errors)) }
}
