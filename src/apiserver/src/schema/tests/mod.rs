//! Tests of schemas: tables of keywords and rules, the CRDs that are shipped, and the manifests of the end-to-end
//! tests.

mod admission;
mod keywords;
mod manifests;
mod rules;
mod types;
mod updates;

use serde_json::{Value, json};

use super::Schema;

/// Returns the schema of objects whose spec has this schema.
fn of_spec(spec: Value) -> Schema {
    Schema::compile(&json!({"type": "object", "properties": {"spec": spec}})).unwrap()
}

/// Returns the schema of objects whose spec has one field, `f`.
fn of_field(field: Value) -> Schema {
    of_spec(json!({"type": "object", "properties": {"f": field}}))
}

/// Returns an object whose spec has one field, `f`.
fn with_field(value: Value) -> Value {
    json!({"spec": {"f": value}})
}

/// Returns the violations of a value of the field `f`, as texts.
fn violations(field: &Value, value: Value) -> Vec<String> {
    texts(&of_field(field.clone()), &with_field(value), None)
}

fn texts(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<String> {
    schema.validate(object, old).iter().map(ToString::to_string).collect()
}
