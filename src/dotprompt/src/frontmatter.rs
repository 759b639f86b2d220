//! Reads and checks the fields of a frontmatter.

use serde_json::{Map, Value};

use super::error::PromptError;
use super::picoschema::to_json_schema;

/// Format of a model's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// Text.
    Text,
    /// One JSON document.
    Json,
}

/// Fields of a frontmatter.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// Name of the model, if the prompt asks for one.
    pub model: Option<String>,
    /// Configuration of the model (`temperature`, …), not checked.
    pub config: Map<String, Value>,
    /// Names of the tools that the model may call, if the prompt chooses.
    pub tools: Option<Vec<String>>,
    /// Most turns of tool calls, at least 1.
    pub max_turns: Option<u32>,
    /// Default values of variables that an input need not have.
    pub input_default: Map<String, Value>,
    /// JSON Schema of the input.
    pub input_schema: Option<Value>,
    /// Format of the answer; JSON if there is a schema and nothing else is said.
    pub output_format: OutputFormat,
    /// JSON Schema of the answer.
    pub output_schema: Option<Value>,
}

/// Reads the metadata of a frontmatter and checks the types of its keys; `fields` were read from `yaml`.
///
/// # Errors
/// A key of the wrong type, with the line.
pub(super) fn read(yaml: &str, fields: Map<String, Value>) -> Result<Metadata, PromptError> {
    let keys = Keys { yaml, fields };
    let input = keys.object("input")?.unwrap_or_default();
    let output = keys.object("output")?.unwrap_or_default();
    let schema = |section: &str, fields: &Map<String, Value>| {
        let schema = fields.get("schema").filter(|schema| !schema.is_null());
        let schema = schema.map(|schema| to_json_schema(schema, &format!("{section}.schema"))).transpose();
        schema.map_err(|problem| keys.error(section, problem))
    };
    let input_default = match input.get("default") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(fields)) => fields.clone(),
        Some(_) => return Err(keys.error("input", "`input.default` must have a value for each variable")),
    };
    let output_schema = schema("output", &output)?;
    let output_format = match output.get("format").filter(|format| !format.is_null()) {
        None if output_schema.is_some() => OutputFormat::Json,
        None => OutputFormat::Text,
        Some(Value::String(name)) if name == "text" => OutputFormat::Text,
        Some(Value::String(name)) if name == "json" => OutputFormat::Json,
        Some(other) => return Err(keys.error("output", format!("`output.format` is {other}; it can be text or json"))),
    };
    Ok(Metadata {
        model: keys.text("model")?,
        config: keys.object("config")?.unwrap_or_default(),
        tools: keys.texts("tools")?,
        max_turns: keys.count("maxTurns")?,
        input_default,
        input_schema: schema("input", &input)?,
        output_format,
        output_schema,
    })
}

/// Returns an error at the line of the top key `key` of `yaml`, which begins on line 2 of its text.
pub(super) fn error_at(yaml: &str, key: &str, message: impl Into<String>) -> PromptError {
    let named = |line: &str| line.trim_start_matches(['"', '\'']).strip_prefix(key).is_some_and(ends_key);
    PromptError::at(yaml.lines().position(named).unwrap_or(0) + 2, message)
}

/// Top-level keys of a frontmatter. A key without a value counts as absent.
struct Keys<'y> {
    yaml: &'y str,
    fields: Map<String, Value>,
}

impl Keys<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    fn error(&self, key: &str, message: impl Into<String>) -> PromptError {
        error_at(self.yaml, key, message)
    }

    fn text(&self, key: &str) -> Result<Option<String>, PromptError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.error(key, format!("`{key}` must be a string"))),
        }
    }

    fn object(&self, key: &str) -> Result<Option<Map<String, Value>>, PromptError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(fields.clone())),
            Some(_) => Err(self.error(key, format!("`{key}` must have `name: value` lines below it"))),
        }
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, PromptError> {
        let error = || self.error(key, format!("`{key}` must be a list of names"));
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(list)) => {
                let names = list.iter().map(|it| it.as_str().map(str::to_owned).ok_or_else(error));
                names.collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(error()),
        }
    }

    fn count(&self, key: &str) -> Result<Option<u32>, PromptError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0);
        count.map(Some).ok_or_else(|| self.error(key, format!("`{key}` must be a whole number from 1 on")))
    }
}

fn ends_key(rest: &str) -> bool {
    rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':')
}
