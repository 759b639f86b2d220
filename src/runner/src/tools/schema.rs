//! Compiled [JSON Schema](https://json-schema.org) for the validation of values.
//!
//! It is compiled once, when the tool is read, so an invalid schema, or one whose validation would never end, is found
//! before anything is served. References to other documents are refused: nothing is fetched. A mismatch is reported
//! with its location as a JSON Pointer (RFC 6901), because a model needs it for the correction.

use std::fmt;
use std::sync::Arc;

use crds::json_schema::Cost;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

/// Maximum number of problems in one report.
const PROBLEMS: usize = 8;
/// Maximum bytes of a compiled regular expression.
const PATTERN: usize = 256 << 10;
/// Maximum number of pairs of a part of the value and a branch of the schema for which problems are listed: the
/// validator collects all of them in memory before it reports the first.
const PAIRS: u64 = 1_000_000;
/// Maximum length of one problem's text, in bytes: it may quote a value.
const PROBLEM: usize = 300;

/// JSON Schema with its validator; clones share both.
#[derive(Clone)]
pub(crate) struct Schema {
    json: Arc<Value>,
    validator: Arc<Validator>,
    cost: Cost,
}

impl Schema {
    /// Compiles `json`.
    ///
    /// # Errors
    /// The location and reason of a problem in the schema.
    pub(crate) fn new(json: Value) -> Result<Self, String> {
        if !json.is_object() {
            return Err("it must be a JSON object".into());
        }
        let cost = crds::json_schema::evaluate_cost(&json)?;
        let patterns = PatternOptions::fancy_regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
        let validator = jsonschema::options().with_pattern_options(patterns).build(&json);
        let validator = validator.map_err(|error| problem(&error))?;
        Ok(Self { json: json.into(), validator: validator.into(), cost })
    }

    /// Returns the schema as JSON.
    pub(crate) fn json(&self) -> &Value {
        &self.json
    }

    /// Validates `value` on a blocking thread instead of one that serves requests: validation may take long and cannot
    /// be interrupted.
    ///
    /// # Errors
    /// The same as [`Schema::check`].
    pub(crate) async fn check_off_thread(&self, value: Value) -> Result<Value, String> {
        // At most two validations at a time; an abandoned one keeps its permit until it ends.
        static CHECKS: Semaphore = Semaphore::const_new(2);
        let Ok(permit) = CHECKS.acquire().await else { return Err("the process ends".into()) };
        let schema = self.clone();
        let checking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            schema.check(&value).map(|()| value)
        });
        checking.await.unwrap_or_else(|_| Err("it cannot be checked".into()))
    }

    /// Validates `value`.
    ///
    /// # Errors
    /// Up to eight problems with their locations, on one line; for a schema that refers to itself, and for a value with
    /// many parts, only the fact that it does not match.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        if self.validator.is_valid(value) {
            return Ok(());
        }
        if self.cost.recursive || count_values(value).saturating_mul(self.cost.branches) > PAIRS {
            return Err("it does not fit the schema".into());
        }
        let problems: Vec<_> = self.validator.iter_errors(value).take(PROBLEMS).map(|error| problem(&error)).collect();
        Err(problems.join("; "))
    }
}

/// Counts the values within a value, itself included.
fn count_values(value: &Value) -> u64 {
    1 + match value {
        Value::Array(list) => list.iter().map(count_values).sum(),
        Value::Object(fields) => fields.values().map(count_values).sum(),
        _ => 0,
    }
}

/// Merges the `default`s of an object's properties that are left out. A `null` that the property does not allow counts
/// as left out, because many models write that for optional arguments; a default written as text is parsed as the
/// property's type. References are not followed.
pub(crate) fn with_defaults(schema: &Value, given: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = given.clone();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let type_ = property["type"].as_str();
        if merged.get(name).is_some_and(Value::is_null) && type_.is_some_and(|type_| type_ != "null") {
            merged.remove(name);
        }
        if let Some(default) = property.get("default")
            && !merged.contains_key(name)
        {
            let scalar = matches!(type_, Some("integer" | "number" | "boolean"));
            let read = default.as_str().filter(|_| scalar).and_then(|text| serde_json::from_str(text).ok());
            merged.insert(name.clone(), read.unwrap_or_else(|| default.clone()));
        }
    }
    merged
}

/// Adds `name` to the required properties of an object schema, as a string unless the schema declares it.
pub(super) fn requiring(mut schema: Value, name: &str) -> Value {
    let properties = &mut schema["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    if properties.get(name).is_none() {
        properties[name] = json!({ "type": "string" });
    }
    match schema["required"].as_array_mut() {
        Some(required) if required.iter().any(|one| one == name) => {}
        Some(required) => required.push(name.into()),
        None => schema["required"] = json!([name]),
    }
    schema
}

fn problem(error: &jsonschema::ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let mut text = error.to_string();
    if text.len() > PROBLEM {
        text.truncate(text.floor_char_boundary(PROBLEM));
        text.push('…');
    }
    if place.is_empty() { text } else { format!("{place}: {text}") }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::new(json!({
            "type": "object",
            "properties": {
                "order": {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "integer"}}}},
                "unit": {"enum": ["kg", "lb"], "default": "kg"},
            },
            "required": ["order"],
            "additionalProperties": false,
        }))
        .unwrap()
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        for (value, problems) in [
            (json!({"order": {"items": [1, 2]}}), None),
            (json!({"order": {"items": [1, "x"]}}), Some("/order/items/1: \"x\" is not of type \"integer\"")),
            (json!({}), Some("\"order\" is a required property")),
            (json!({"order": {}, "unit": "t"}), Some("/unit: \"t\" is not one of \"kg\" or \"lb\"")),
            (
                json!({"a": 1}),
                Some("Additional properties are not allowed ('a' was unexpected); \"order\" is a required property"),
            ),
        ] {
            let found = schema().check(&value).err();
            assert_eq!(found.as_deref(), problems, "{value}");
        }
        let long = schema().check(&json!({"order": "é".repeat(PROBLEM)})).unwrap_err();
        assert!(long.len() < PROBLEM + 20 && long.ends_with('…'), "{long}");
    }

    #[test]
    fn problems_are_not_looked_for_where_there_may_be_endlessly_many() {
        let doubled = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        let schema = Schema::new(json!({"type": "object", "properties": {"a": doubled, "b": false}})).unwrap();
        let value = |levels: usize| (0..levels).fold(json!({"b": 1}), |inner, _| json!({ "a": inner }));
        assert_eq!(schema.check(&value(60)).unwrap_err(), "it does not fit the schema");
        assert_eq!(schema.check(&json!({"a": {"a": {}}})), Ok(()));
        let wide: Vec<_> = (0..5000).map(|n| json!({ "const": n })).collect();
        let schema = Schema::new(json!({"items": {"anyOf": wide}})).unwrap();
        assert_eq!(schema.check(&json!(vec![-1; 1000])).unwrap_err(), "it does not fit the schema");
        assert!(schema.check(&json!([-1])).unwrap_err().contains("/0: "));
    }

    #[test]
    fn a_schema_that_is_none_is_refused_and_nothing_is_fetched() {
        for json in [
            json!([]),
            json!({"type": "thing"}),
            json!({"properties": 1}),
            json!({"$ref": "http://127.0.0.1:1/schema.json"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"pattern": "("}),
        ] {
            assert!(Schema::new(json.clone()).is_err(), "{json}");
        }
    }

    #[test]
    fn defaults_fill_what_is_left_out() {
        let given = json!({"order": {}});
        let merged = with_defaults(schema().json(), given.as_object().unwrap());
        assert_eq!(Value::Object(merged), json!({"order": {}, "unit": "kg"}));
    }

    #[test]
    fn null_counts_as_left_out_and_a_default_is_read_as_its_type() {
        let schema = json!({"properties": {
            "n": {"type": "integer", "default": "3"}, "s": {"type": "string", "default": "3"},
            "o": {"type": "string"}, "any": {}, "maybe": {"type": ["string", "null"], "default": "x"},
        }});
        for (given, merged) in [
            (json!({}), json!({"n": 3, "s": "3", "maybe": "x"})),
            (
                json!({"n": null, "s": null, "o": null, "any": null, "maybe": null}),
                json!({"n": 3, "s": "3", "any": null, "maybe": null}),
            ),
        ] {
            assert_eq!(Value::Object(with_defaults(&schema, given.as_object().unwrap())), merged, "{given}");
        }
    }

    #[test]
    fn a_required_name_is_added_once() {
        let added = requiring(json!({"type": "object"}), "id");
        let expected = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
        assert_eq!(added, expected);
        assert_eq!(requiring(added.clone(), "id"), added);
        let kept = json!({"properties": {"id": {"type": "integer"}}, "required": ["id", "x"]});
        assert_eq!(requiring(kept.clone(), "id"), kept);
    }
}
