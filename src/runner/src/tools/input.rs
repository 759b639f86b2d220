//! Declaration of a tool's arguments: a list of parameters, or a JSON Schema.
//!
//! Both have the same interface: a schema for the model, validation of a call's arguments, and an order, which the
//! arguments of a program need.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    error::ToolError,
    parameters::{self, Parameter, ParameterType},
    schema::{self, Schema},
};

/// Declaration of a tool's arguments.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Input {
    /// Ordered list of scalars.
    Parameters(Vec<Parameter>),
    /// Object that matches the schema.
    Schema(Schema),
}

impl Input {
    /// Accepts any object.
    ///
    /// # Errors
    /// None; the schema is a constant.
    pub(super) fn anything() -> Result<Self, String> {
        Schema::new(json!({ "type": "object" })).map(Self::Schema)
    }

    /// Returns the JSON Schema of the arguments: always that of an object.
    pub(super) fn schema(&self) -> Value {
        match self {
            Self::Schema(schema) => schema.json().clone(),
            Self::Parameters(parameters) => {
                let properties: Map<_, _> = parameters.iter().map(|one| (one.name.clone(), one.schema())).collect();
                let required = parameters.iter().filter(|one| one.required && one.default.is_none());
                let required: Vec<_> = required.map(|one| one.name.as_str()).collect();
                let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
                if !required.is_empty() {
                    schema["required"] = required.into();
                }
                schema
            }
        }
    }

    /// Returns the names of the arguments in order. A schema orders only `required`: those names come first, the others
    /// follow sorted by name.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Parameters(parameters) => parameters.iter().map(|one| one.name.clone()).collect(),
            Self::Schema(schema) => {
                let required = schema.json()["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let mut names: Vec<String> = required.map(str::to_owned).collect();
                for name in schema.json()["properties"].as_object().into_iter().flatten().map(|(name, _)| name) {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
                names
            }
        }
    }

    /// Makes `name` a required argument, a string unless it is declared otherwise.
    ///
    /// # Errors
    /// The changed schema is invalid.
    pub(super) fn require(&mut self, name: &str) -> Result<(), String> {
        match self {
            Self::Parameters(parameters) => {
                if !parameters.iter().any(|one| one.name == name) {
                    parameters.push(Parameter::required(name, ParameterType::String));
                }
            }
            Self::Schema(schema) => *schema = Schema::new(schema::requiring(schema.json().clone(), name))?,
        }
        Ok(())
    }

    /// Validates the arguments of a call and merges defaults. `null` counts as no arguments.
    ///
    /// # Errors
    /// [`ToolError::Arguments`] with all problems, so that the model can correct them at once.
    pub(super) async fn check(&self, arguments: &Value) -> Result<BTreeMap<String, Value>, ToolError> {
        let given = match arguments {
            Value::Null => &Map::new(),
            Value::Object(given) => given,
            _ => return Err(ToolError::Arguments("they must be a JSON object".into())),
        };
        match self {
            Self::Parameters(list) => parameters::check(list, given),
            Self::Schema(schema) => {
                let merged = Value::Object(schema::with_defaults(schema.json(), given));
                let merged = schema.check_off_thread(merged).await.map_err(ToolError::Arguments)?;
                let Value::Object(merged) = merged else { return Ok(BTreeMap::new()) };
                Ok(merged.into_iter().collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Input {
        let list = json!([
            {"name": "city", "description": "where", "required": true},
            {"name": "args", "type": "number", "default": 2},
        ]);
        Input::Parameters(serde_json::from_value(list).unwrap())
    }

    #[test]
    fn a_model_is_given_a_schema_either_way() {
        assert_eq!(
            parameters().schema(),
            json!({
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "where"},
                    "args": {"type": "number", "default": 2},
                },
                "required": ["city"],
                "additionalProperties": false,
            })
        );
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}, "c": {}}, "required": ["c"]});
        let input = Input::Schema(Schema::new(schema.clone()).unwrap());
        assert_eq!(input.schema(), schema);
        assert_eq!(
            (input.names(), parameters().names()),
            (vec!["c".into(), "a".into(), "b".into()], vec!["city".into(), "args".into()])
        );
    }

    #[tokio::test]
    async fn a_schema_checks_a_call_after_its_defaults_are_merged() {
        let schema = json!({"properties": {"n": {"type": "integer", "default": 1}}, "required": ["n"]});
        let input = Input::Schema(Schema::new(schema).unwrap());
        assert_eq!(json!(input.check(&Value::Null).await.unwrap()), json!({"n": 1}));
        for (arguments, problem) in
            [(json!({"n": "x"}), "/n: \"x\" is not of type \"integer\""), (json!("x"), "they must be a JSON object")]
        {
            assert_eq!(input.check(&arguments).await, Err(ToolError::Arguments(problem.into())));
        }
    }
}
