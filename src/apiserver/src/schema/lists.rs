//! Sets and maps that are written as lists: items that occur twice, and which item of the old list an item comes from.

use serde_json::{Map, Value};

use super::{
    error::{FieldError, child},
    structural::{ListType, StructuralSchema},
};

/// Adds an error for each item that repeats one before it: once per value, at its second occurrence.
pub(super) fn check(node: &StructuralSchema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            match &node.list_type {
                Some(ListType::Set) => repeated(items, path, errors),
                Some(ListType::Map(keys)) => check_map(items, keys, path, errors),
                Some(ListType::Atomic) | None => {}
            }
            for (index, item) in items.iter().enumerate() {
                node.items.iter().for_each(|schema| check(schema, item, &format!("{path}[{index}]"), errors));
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                match (node.properties.get(name), &node.additional) {
                    (Some(schema), _) => check(schema, field, &child(path, name), errors),
                    (None, Some(schema)) => check(schema, field, &format!("{path}[{name}]"), errors),
                    (None, None) => {}
                }
            }
        }
        _ => {}
    }
}

fn check_map(items: &[Value], keys: &[String], path: &str, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&format!("{path}[{index}]"), &items[index], detail));
        return;
    }
    let key_of = |item: &Value| {
        let fields = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(fields.collect::<Map<_, _>>())
    };
    repeated(&items.iter().map(key_of).collect::<Vec<_>>(), path, errors);
}

fn repeated(values: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    for (index, value) in values.iter().enumerate() {
        if values[..index].iter().filter(|other| *other == value).count() == 1 {
            errors.push(FieldError::duplicate(&format!("{path}[{index}]"), value));
        }
    }
}

/// Returns the item of the old list that has the keys of this one. Only items of maps have one.
pub(super) fn counterpart<'a>(node: &StructuralSchema, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let Some(ListType::Map(keys)) = &node.list_type else { return None };
    old?.as_array()?.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}
