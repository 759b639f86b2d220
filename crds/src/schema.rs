//! Parts of the schemas of several kinds: rules in CEL, merge keys, and types of Kubernetes itself.
//!
//! A rule on the fields of one kind stands beside them, as `#[schemars(transform = rule(…))]`. The types of Kubernetes come
//! with pages of description and without merge keys: `meta::schema` cuts the descriptions, [`by_name`] adds the keys.

use meta::schema::list_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Returns a transform that adds a validation rule in CEL to a schema, with the message for a value that breaks it.
pub(crate) fn rule(rule: impl Into<String>, message: impl Into<String>) -> impl Fn(&mut Schema) {
    add(json!({ "rule": rule.into(), "message": message.into() }))
}

/// As [`rule`], for a rule that reads `oldSelf`: the value before, if there was one. Objects that were stored before the
/// rule existed can pass by it, because they could otherwise never be changed or deleted.
pub(crate) fn transition_rule(rule: impl Into<String>, message: impl Into<String>) -> impl Fn(&mut Schema) {
    add(json!({ "rule": rule.into(), "message": message.into(), "optionalOldSelf": true }))
}

/// Returns a transform that adds the rule that exactly one of two fields is set.
pub(crate) fn one_of(one: &str, other: &str) -> impl Fn(&mut Schema) + use<> {
    rule(format!("has(self.{one}) != has(self.{other})"), format!("set exactly one of {one} and {other}"))
}

fn add(rule: Value) -> impl Fn(&mut Schema) {
    move |schema| {
        let rules = schema.ensure_object().entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        if let Value::Array(rules) = rules {
            rules.push(rule.clone());
        }
    }
}

/// Returns the schema of a list whose items are merged by their name, which is unique in the list.
pub(crate) fn by_name<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    list_map::<T>(generator, "name")
}

/// Returns the schema of an object that is kept as written.
pub(crate) fn opaque_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the schema of any JSON value, kept as written.
pub(crate) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

pub(crate) fn pull_policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Always", "IfNotPresent", "Never"] })
}
