//! Checks values against types and limits, as `k8s.io/kube-openapi/pkg/validation/validate` does.
//!
//! A value that an update leaves as it is passes (*ratcheting*), because an object that was stored under an older
//! schema could otherwise never be changed.

use serde_json::Value;

use super::{
    error::{FieldError, child},
    lists,
    structural::{DataType, StructuralSchema},
    value_validation::is_integral,
};

/// Checks the value at `path`, which was `old` before. Adds errors in the API server's order; where that one has none,
/// because it iterates over a map, by name.
pub(super) fn check(
    node: &StructuralSchema,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    check_type(node, value, path, errors);
    match value {
        Value::String(text) => node.validation.text(text, path, errors),
        Value::Number(number) => node.validation.number(number, path, errors),
        Value::Array(items) => {
            if let Some(schema) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    check(schema, item, lists::counterpart(node, item, old), &format!("{path}[{index}]"), errors);
                }
            }
            node.validation.items(items, path, errors);
        }
        _ => {}
    }
    node.validation.listed(value, path, errors);
    let Value::Object(fields) = value else { return };
    if !node.validation.properties(fields.len(), path, errors) {
        return;
    }
    let mut check_field = |schema: &StructuralSchema, name: &String, field: &Value| {
        let old = old.and_then(|old| old.get(name));
        check(schema, field, old, &child(path, name), errors);
    };
    if let Some(schema) = &node.additional {
        let others = fields.iter().filter(|(name, _)| !node.properties.contains_key(*name));
        others.for_each(|(name, field)| check_field(schema, name, field));
    }
    for (name, schema) in &node.properties {
        if let Some(field) = fields.get(name) {
            check_field(schema, name, field);
        }
    }
    node.validation.required(|name| fields.contains_key(name), path, errors);
}

fn check_type(node: &StructuralSchema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(expected) = node.data_type else { return };
    let (actual, format) = match value {
        Value::Null if node.nullable => return,
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let fits = match (expected, value) {
        (DataType::Integer | DataType::IntOrString, Value::Number(number)) => is_integral(number),
        (DataType::Number, Value::Number(_)) | (DataType::IntOrString, Value::String(_)) => true,
        _ => actual == expected.name(),
    };
    if fits {
        return;
    }
    // The API server names the format instead of the type, except for a null.
    let has_format = node.validation.date_time && !value.is_null();
    let (expected, actual) = if has_format { ("date-time", format) } else { (expected.name(), actual) };
    errors.push(FieldError::wrong_type(path, expected, actual));
}
