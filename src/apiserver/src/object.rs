//! Access to objects as JSON: texts at pointers, parts of metadata, times.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Returns the text at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the whole number at a JSON pointer.
pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// Returns the items of the list at a JSON pointer.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Returns `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Reports whether the object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string)
}

/// Returns its finalizers.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/metadata/finalizers").iter().filter_map(Value::as_str)
}

/// Returns the metadata to change, and makes it if it is not there.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    fields(field(object, "metadata"))
}

/// Returns a field of an object to change, and makes it if it is not there. A value that is no object becomes one.
pub(crate) fn field<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    fields(object).entry(name).or_insert(Value::Null)
}

/// Returns the fields of a value to change. A value that is no object becomes one.
pub(crate) fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        // Not reached: it was made an object.
        _ => unreachable!(),
    }
}

/// Sets a field of metadata, or removes it.
pub(crate) fn set_metadata(object: &mut Value, name: &str, value: Option<Value>) {
    let metadata = metadata(object);
    match value {
        Some(value) => drop(metadata.insert(name.to_owned(), value)),
        None => drop(metadata.remove(name)),
    }
}

/// Sets or removes a field of the object.
pub(crate) fn set_field(object: &mut Value, name: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(fields(object).insert(name.to_owned(), value)),
        None => drop(fields(object).remove(name)),
    }
}

/// Sets the finalizers; an empty list is left out.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    set_metadata(object, "finalizers", (!finalizers.is_empty()).then(|| finalizers.into()));
}

/// Sets a value at a JSON pointer, and makes the objects on the way.
pub(crate) fn set_at(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for name in pointer.split('/').skip(1) {
        place = field(place, name);
    }
    *place = value;
}

/// Removes nulls from objects; those in lists stay, because they count.
pub(crate) fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Returns a time as the API server writes it, in whole seconds.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
