//! Changes of the API server to an object before it checks it: nulls, unknown fields and defaults.

use serde_json::Value;

use super::{error::child, structural::StructuralSchema};

/// Removes nulls that a field may not have and that no default replaces.
pub(super) fn remove_nulls(node: &StructuralSchema, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, field| match node.field(name) {
            Some(schema) if field.is_null() => schema.nullable || schema.default.is_some(),
            Some(schema) => {
                remove_nulls(schema, field);
                true
            }
            None => true,
        }),
        Value::Array(items) => {
            if let Some(schema) = &node.items {
                items.iter_mut().for_each(|item| remove_nulls(schema, item));
            }
        }
        _ => {}
    }
}

/// Sets the defaults of fields that are missing, or null without being allowed to; also within a default.
pub(super) fn set_defaults(node: &StructuralSchema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in &node.properties {
                let is_missing = fields.get(name).is_none_or(|field| field.is_null() && !schema.nullable);
                if let Some(default) = schema.default.as_ref().filter(|_| is_missing) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                match (node.properties.get(name), &node.additional) {
                    (Some(schema), _) => set_defaults(schema, field),
                    (None, Some(schema)) => set_default(schema, field),
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &node.items {
                items.iter_mut().for_each(|item| set_default(schema, item));
            }
        }
        _ => {}
    }
}

fn set_default(node: &StructuralSchema, value: &mut Value) {
    if let Some(default) = node.default.as_ref().filter(|_| value.is_null() && !node.nullable) {
        *value = default.clone();
    }
    set_defaults(node, value);
}

/// Removes fields that the schema does not name, unless it preserves them, and adds their paths. Without a schema: all
/// fields. `inherited`: the list that holds the value preserves unknown fields.
pub(super) fn prune(
    node: Option<&StructuralSchema>,
    value: &mut Value,
    path: &str,
    inherited: bool,
    removed: &mut Vec<String>,
) {
    let preserve = inherited || node.is_some_and(|node| node.preserve);
    match value {
        Value::Object(fields) => fields.retain(|name, field| {
            let at = child(path, name);
            match node {
                Some(node) if node.owns_metadata(name) => true,
                Some(node) if node.field(name).is_some() => {
                    prune(node.field(name), field, &at, false, removed);
                    true
                }
                _ if preserve => true,
                _ => {
                    removed.push(at);
                    false
                }
            }
        }),
        Value::Array(items) => {
            let schema = node.and_then(|node| node.items.as_deref());
            if preserve && schema.is_none() {
                return;
            }
            for (index, item) in items.iter_mut().enumerate() {
                prune(schema, item, &format!("{path}[{index}]"), preserve, removed);
            }
        }
        _ => {}
    }
}
