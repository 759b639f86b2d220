//! Checks the types of an object that is applied, in the words of `sigs.k8s.io/structured-merge-diff`: server-side
//! apply refuses an object that it cannot merge before any other check.

use serde_json::Value;

use super::{
    go,
    structural::{DataType, ListType, StructuralSchema},
};

/// Adds an error for each value at `path` that is of another type, that the schema does not name, or whose key repeats.
pub(super) fn check(node: &StructuralSchema, value: &Value, path: &str, errors: &mut Vec<String>) {
    let Some(wanted) = node.data_type.filter(|_| !value.is_null()) else { return };
    let expected = match (wanted, value) {
        (DataType::Object, Value::Object(_)) => return fields(node, value, path, errors),
        (DataType::Array, Value::Array(items)) => return list(node, items, path, errors),
        (DataType::Integer | DataType::Number | DataType::IntOrString, Value::Number(_))
        | (DataType::String | DataType::IntOrString, Value::String(_))
        | (DataType::Boolean | DataType::IntOrString, Value::Bool(_)) => return,
        (DataType::Integer | DataType::Number, _) => format!("numeric (int or float), got {}", go::type_name(value)),
        (DataType::String, _) => format!("string, got &value.valueUnstructured{{Value:{}}}", go::syntax(value)),
        (DataType::Boolean, _) => format!("boolean, got &{{{}}}", go::plain(value)),
        (DataType::IntOrString, _) => format!("any scalar, got &{{{}}}", go::plain(value)),
        (DataType::Array, _) => format!("list, got &{{{}}}", go::plain(value)),
        (DataType::Object, _) => format!("map, got &{{{}}}", go::plain(value)),
    };
    errors.push(format!("{path}: expected {expected}"));
}

fn fields(node: &StructuralSchema, value: &Value, path: &str, errors: &mut Vec<String>) {
    let fields = value.as_object().into_iter().flatten().filter(|(name, _)| !node.owns_metadata(name));
    for (name, field) in fields {
        let path = format!("{path}.{name}");
        match node.field(name) {
            Some(schema) => check(schema, field, &path, errors),
            None if node.preserve => {}
            None => {
                errors.push(format!("{path}: field not declared in schema"));
                return; // the API server looks no further either
            }
        }
    }
}

fn list(node: &StructuralSchema, items: &[Value], path: &str, errors: &mut Vec<String>) {
    let mut seen = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let key = match &node.list_type {
            Some(ListType::Map(keys)) => map_key(node, keys, item),
            Some(ListType::Set) => set_key(item),
            Some(ListType::Atomic) | None => Ok(format!("[{index}]")),
        };
        let key = match key {
            Ok(key) => key,
            Err(error) => {
                errors.push(format!("{path}: element {index}: {error}"));
                return;
            }
        };
        if seen.contains(&key) {
            errors.push(format!("{path}: duplicate entries for key {key}"));
        }
        if let Some(schema) = &node.items {
            check(schema, item, &format!("{path}{key}"), errors);
        }
        seen.push(key);
    }
}

fn map_key(node: &StructuralSchema, keys: &[String], item: &Value) -> Result<String, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut sorted: Vec<&String> = keys.iter().collect();
    sorted.sort();
    let parts = sorted.into_iter().map(|key| {
        let default = || node.items.as_ref()?.field(key)?.default.as_ref();
        let value = fields.get(key).or_else(default).ok_or_else(|| {
            format!(
                "associative list with keys has an element that omits key field {key:?} \
                 (and doesn't have default value)"
            )
        })?;
        Ok(format!("{key}={}", key_text(value)))
    });
    Ok(format!("[{}]", parts.collect::<Result<Vec<_>, String>>()?.join(",")))
}

fn set_key(item: &Value) -> Result<String, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
        scalar => Ok(format!("[={}]", key_text(scalar))),
    }
}

fn key_text(value: &Value) -> String {
    match value {
        Value::String(text) => go::quoted(text),
        other => go::plain(other),
    }
}
