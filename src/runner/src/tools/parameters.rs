//! Parameters of a tool, and the validation of a call's arguments.
//!
//! Defaults are merged before validation, so a required parameter with a default may be left out. `null` counts as left
//! out. An undeclared name is refused rather than ignored, because a model that misspells a name must get the error.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::error::ToolError;

/// Type of a parameter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ParameterType {
    /// Text.
    #[default]
    String,
    /// Number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
    /// Words: an array of strings, or one string that is split like in a POSIX shell, including quotes.
    #[serde(skip)]
    Words,
}

/// Parameter of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Parameter {
    /// Name.
    pub(crate) name: String,
    /// Type.
    #[serde(rename = "type", default)]
    pub(crate) type_: ParameterType,
    /// Meaning, for the model.
    #[serde(default)]
    pub(crate) description: String,
    /// Set when a call must have it.
    #[serde(default)]
    pub(crate) required: bool,
    /// Value for a call without it.
    #[serde(default)]
    pub(crate) default: Option<Value>,
}

impl Parameter {
    /// Creates a required parameter.
    pub(super) fn required(name: &str, type_: ParameterType) -> Self {
        Self { name: name.into(), type_, description: String::new(), required: true, default: None }
    }

    /// Returns its JSON Schema.
    pub(super) fn schema(&self) -> Value {
        let mut schema = match self.type_ {
            ParameterType::String => json!({ "type": "string" }),
            ParameterType::Integer => json!({ "type": "integer" }),
            ParameterType::Number => json!({ "type": "number" }),
            ParameterType::Boolean => json!({ "type": "boolean" }),
            ParameterType::Words => json!({ "type": "array", "items": { "type": "string" } }),
        };
        if !self.description.is_empty() {
            schema["description"] = self.description.as_str().into();
        }
        if let Some(default) = &self.default {
            schema["default"] = default.clone();
        }
        schema
    }

    /// Converts a default written as text to the parameter's type; `None` when it does not have that type.
    pub(super) fn with_typed_default(mut self) -> Option<Self> {
        let Some(default) = &self.default else { return Some(self) };
        if !fits(self.type_, default) {
            let typed = default.as_str().and_then(|text| serde_json::from_str(text).ok())?;
            if !fits(self.type_, &typed) {
                return None;
            }
            self.default = Some(typed);
        }
        Some(self)
    }
}

/// Validates the arguments of a call and merges defaults.
///
/// # Errors
/// [`ToolError::Arguments`] with all problems, so that the model can correct them at once.
pub(super) fn check(
    parameters: &[Parameter],
    given: &Map<String, Value>,
) -> Result<BTreeMap<String, Value>, ToolError> {
    let mut problems = Vec::new();
    let mut merged = BTreeMap::new();
    for parameter in parameters {
        let name = &parameter.name;
        match given.get(name).filter(|value| !value.is_null()).or(parameter.default.as_ref()) {
            Some(value) if fits(parameter.type_, value) => {
                merged.insert(name.clone(), value.clone());
            }
            Some(_) => problems.push(format!("`{name}` must be {}", article(parameter.type_))),
            None if parameter.required => problems.push(format!("`{name}` is missing")),
            None => {}
        }
    }
    let known = |name: &String| parameters.iter().any(|parameter| parameter.name == *name);
    problems.extend(given.keys().filter(|name| !known(name)).map(|name| format!("`{name}` is not a parameter")));
    if problems.is_empty() { Ok(merged) } else { Err(ToolError::Arguments(problems.join("; "))) }
}

fn fits(type_: ParameterType, value: &Value) -> bool {
    match type_ {
        ParameterType::String => value.is_string(),
        ParameterType::Integer => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        ParameterType::Number => value.is_number(),
        ParameterType::Boolean => value.is_boolean(),
        ParameterType::Words => match value {
            Value::String(_) => true,
            Value::Array(words) => words.iter().all(Value::is_string),
            _ => false,
        },
    }
}

fn article(type_: ParameterType) -> &'static str {
    match type_ {
        ParameterType::String => "a string",
        ParameterType::Integer => "an integer",
        ParameterType::Number => "a number",
        ParameterType::Boolean => "true or false",
        ParameterType::Words => "an array of strings, or one string",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameters() -> Vec<Parameter> {
        [
            json!({"name": "city", "type": "string", "required": true}),
            json!({"name": "days", "type": "integer", "default": "3"}),
            json!({"name": "ratio", "type": "number"}),
            json!({"name": "deep", "type": "boolean", "required": true, "default": false}),
        ]
        .map(|one| serde_json::from_value::<Parameter>(one).unwrap().with_typed_default().unwrap())
        .into()
    }

    #[test]
    fn which_arguments_fit() {
        for (arguments, expected) in [
            (json!({"city": "Bern"}), Ok(json!({"city": "Bern", "days": 3, "deep": false}))),
            (
                json!({"city": "", "days": 1.0, "ratio": 1}),
                Ok(json!({"city": "", "days": 1.0, "ratio": 1, "deep": false})),
            ),
            (json!({"city": "x", "days": null}), Ok(json!({"city": "x", "days": 3, "deep": false}))),
            (json!({}), Err("`city` is missing")),
            (json!({"city": 1}), Err("`city` must be a string")),
            (json!({"city": "x", "days": 1.5}), Err("`days` must be an integer")),
            (json!({"city": "x", "days": "1"}), Err("`days` must be an integer")),
            (json!({"city": "x", "ratio": "1"}), Err("`ratio` must be a number")),
            (json!({"city": "x", "deep": 0}), Err("`deep` must be true or false")),
            (
                json!({"town": "x", "deep": 0}),
                Err("`city` is missing; `deep` must be true or false; `town` is not a parameter"),
            ),
        ] {
            let found = check(&parameters(), arguments.as_object().unwrap()).map(|merged| json!(merged));
            assert_eq!(found, expected.map_err(|text| ToolError::Arguments(text.into())), "{arguments}");
        }
    }

    #[test]
    fn a_default_must_have_the_type() {
        for (type_, default, good) in
            [("integer", json!("x"), false), ("boolean", json!("true"), true), ("string", json!(1), false)]
        {
            let parameter: Parameter =
                serde_json::from_value(json!({"name": "p", "type": type_, "default": default})).unwrap();
            assert_eq!(parameter.with_typed_default().is_some(), good, "{type_}");
        }
    }
}
