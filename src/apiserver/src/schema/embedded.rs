//! Objects within objects (`x-kubernetes-embedded-resource`): they need an `apiVersion` and a `kind`.

use serde_json::Value;

use super::{
    error::{FieldError, child},
    structural::StructuralSchema,
};

/// Checks the objects that are embedded in the value at `path`.
pub(super) fn check(node: &StructuralSchema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if node.resource && !path.is_empty() {
                ["apiVersion", "kind"].into_iter().for_each(|name| named(value, path, name, errors));
            }
            for (name, field) in fields {
                match (node.properties.get(name), &node.additional) {
                    (Some(schema), _) => check(schema, field, &child(path, name), errors),
                    (None, Some(schema)) => check(schema, field, &format!("{path}[{name}]"), errors),
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                node.items.iter().for_each(|schema| check(schema, item, &format!("{path}[{index}]"), errors));
            }
        }
        _ => {}
    }
}

fn named(object: &Value, path: &str, name: &str, errors: &mut Vec<FieldError>) {
    let at = child(path, name);
    match object.get(name) {
        None => errors.push(FieldError::required(&at)),
        Some(Value::String(text)) if text.is_empty() => errors.push(FieldError::required(&at)),
        Some(Value::String(_)) => {}
        Some(other) => errors.push(FieldError::invalid(&at, other, "must be a string")),
    }
}
