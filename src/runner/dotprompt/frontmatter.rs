//! Parts a `.prompt` text into its frontmatter and its template, and reads the frontmatter.

use serde_json::{Map, Value};

use super::picoschema::to_json_schema;
use super::{Metadata, OutputFormat, PromptError};

/// The two parts of a text.
pub(super) struct Document<'t> {
    /// The YAML, if there is any, which begins on line 2.
    pub(super) frontmatter: Option<&'t str>,
    pub(super) template: &'t str,
    /// Lines of the text before the template's first.
    pub(super) lines_before: usize,
}

/// Parts `text`: a frontmatter stands between two `---` lines, the first of which begins the text. The template after a
/// frontmatter loses the white space around it; without one it is the text, verbatim.
///
/// # Errors
/// A frontmatter that does not end.
pub(super) fn split(text: &str) -> Result<Document<'_>, PromptError> {
    let text_without_mark = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text_without_mark.split_inclusive('\n');
    if lines.next().is_none_or(|line| line.trim_end() != "---") {
        return Ok(Document { frontmatter: None, template: text, lines_before: 0 });
    }
    let start = text_without_mark.find('\n').map_or(text_without_mark.len(), |end| end + 1);
    let mut end = start;
    for line in lines {
        let after = end + line.len();
        if line.trim_end() == "---" {
            let rest = &text_without_mark[after..];
            let template = rest.trim();
            let before = after + rest.len() - rest.trim_start().len();
            let lines_before = text_without_mark[..before].matches('\n').count();
            return Ok(Document { frontmatter: Some(&text_without_mark[start..end]), template, lines_before });
        }
        end = after;
    }
    let message = "the frontmatter that begins here does not end; add a line `---` after it";
    Err(PromptError::at(1, message))
}

/// What a frontmatter says, its keys checked.
///
/// # Errors
/// YAML that cannot be read, or a key that has not the type it must have, with the line.
pub(super) fn read(yaml: &str) -> Result<Metadata, PromptError> {
    let value: serde_yaml::Value = serde_yaml::from_str(yaml).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        PromptError::at(line + 1, format!("the frontmatter is not YAML: {error}"))
    })?;
    let fields = match to_json(value).map_err(|problem| PromptError::at(2, format!("the frontmatter has {problem}")))? {
        Value::Null => Map::new(),
        Value::Object(fields) => fields,
        _ => return Err(PromptError::at(2, "the frontmatter must be `key: value` lines")),
    };
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

/// An error at the line of the top key `key` of `yaml`, which begins on line 2 of its text.
pub(super) fn error_at(yaml: &str, key: &str, message: impl Into<String>) -> PromptError {
    let named = |line: &str| line.trim_start_matches(['"', '\'']).strip_prefix(key).is_some_and(ends_key);
    PromptError::at(yaml.lines().position(named).unwrap_or(0) + 2, message)
}

/// The keys at the top of a frontmatter. A key without a value is as one that is not there.
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

/// YAML as JSON: keys become strings.
fn to_json(value: serde_yaml::Value) -> Result<Value, String> {
    Ok(match value {
        serde_yaml::Value::Null => Value::Null,
        serde_yaml::Value::Bool(yes) => yes.into(),
        serde_yaml::Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => number.into(),
            (_, Some(number), _) => number.into(),
            (.., Some(number)) if number.is_finite() => number.into(),
            _ => return Err(format!("the number {number}, which JSON does not have")),
        },
        serde_yaml::Value::String(text) => text.into(),
        serde_yaml::Value::Sequence(list) => list.into_iter().map(to_json).collect::<Result<Vec<_>, _>>()?.into(),
        serde_yaml::Value::Mapping(fields) => {
            let field = |(key, value)| Ok::<_, String>((to_key(key)?, to_json(value)?));
            Value::Object(fields.into_iter().map(field).collect::<Result<_, _>>()?)
        }
        serde_yaml::Value::Tagged(tagged) => return Err(format!("the tag `{}`, which is not supported", tagged.tag)),
    })
}

fn to_key(key: serde_yaml::Value) -> Result<String, String> {
    match to_json(key)? {
        Value::String(text) => Ok(text),
        key @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Ok(key.to_string()),
        Value::Array(_) | Value::Object(_) => Err("a key that is a list or has fields".into()),
    }
}
