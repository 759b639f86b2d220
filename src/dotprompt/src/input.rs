//! Merges an input with its defaults and validates it by the schema.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

/// Most problems named in one error.
const MAX_LISTED_PROBLEMS: usize = 5;

/// Most regular expressions in a schema. The operator compiles those that users write, so their number and size are limited.
const MOST_PATTERNS: usize = 200;
/// Most bytes of one of them once it is compiled.
const MAX_PATTERN_BYTES: usize = 256 << 10;

/// Counts the regular expressions in a schema; a property that is only named like one counts too.
fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Array(list) => list.iter().map(patterns).sum(),
        Value::Object(fields) => {
            let own = usize::from(fields.contains_key("pattern"))
                + fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
            own + fields.values().map(patterns).sum::<usize>()
        }
        _ => 0,
    }
}

/// Checks that the schema of an input admits objects.
///
/// # Errors
/// No object matches it, and an input is always an object.
pub(super) fn check_object_schema(schema: &Value) -> Result<(), String> {
    let fits = match &schema["type"] {
        Value::String(one) => one == "object",
        Value::Array(several) => several.iter().any(|one| one == "object"),
        _ => true,
    };
    let found = &schema["type"];
    fits.then_some(()).ok_or_else(|| {
        format!(
            "`input.schema` is of type {found}, and an input is an object: give the value a name, as in `text: string`"
        )
    })
}

/// Compiles the schema at `place` of the frontmatter.
///
/// # Errors
/// It is no JSON Schema, or has too many regular expressions.
pub(super) fn validator(schema: &Value, place: &str) -> Result<Validator, String> {
    let patterns = patterns(schema);
    if patterns > MOST_PATTERNS {
        return Err(format!("`{place}` has {patterns} patterns, more than {MOST_PATTERNS}"));
    }
    let bounded = PatternOptions::fancy_regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
    jsonschema::options().with_pattern_options(bounded).build(schema).map_err(|error| {
        let at = path(error.instance_path().as_str());
        let at = if at.is_empty() { place.to_owned() } else { format!("{place}.{at}") };
        format!("`{at}` is not JSON Schema: {}", error.masked())
    })
}

/// Merges `input` over `default` into the variables of a template, and validates them.
///
/// # Errors
/// All problems of the input, by path; the first [`MAX_LISTED_PROBLEMS`] are named.
pub(super) fn merge(
    input: &Value,
    default: &Map<String, Value>,
    validator: Option<&Validator>,
) -> Result<Value, String> {
    let mut variables = default.clone();
    match input {
        Value::Null => {}
        Value::Object(fields) => variables.extend(fields.clone()),
        other => return Err(format!("the input must be an object with the prompt's variables, not {}", kind(other))),
    }
    let variables = Value::Object(variables);
    let mut problems: Vec<_> =
        validator.map(|it| it.iter_errors(&variables).map(describe).collect()).unwrap_or_default();
    if problems.is_empty() {
        return Ok(variables);
    }
    let more = problems.len().saturating_sub(MAX_LISTED_PROBLEMS);
    problems.truncate(MAX_LISTED_PROBLEMS);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    Err(problems.join("; "))
}

/// Describes one problem as a sentence. It quotes no value: an input may be confidential.
fn describe(error: ValidationError<'_>) -> String {
    let at = path(error.instance_path().as_str());
    let here = if at.is_empty() { "the input".to_owned() } else { format!("`{at}`") };
    let field = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            format!("`{}` is required and missing", field(property.as_str().unwrap_or_default()))
        }
        ValidationErrorKind::Type { kind: wanted } => {
            let wanted: Vec<_> = match wanted {
                TypeKind::Single(one) => vec![one.to_string()],
                TypeKind::Multiple(several) => several.iter().map(|one| one.to_string()).collect(),
            };
            format!("{here} must be of type {}, not {}", wanted.join(" or "), kind(error.instance()))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names: Vec<_> = unexpected.iter().map(|name| format!("`{}`", field(name))).collect();
            format!("{} is not a variable of this prompt", names.join(", "))
        }
        ValidationErrorKind::Enum { options } => format!("{here} must be one of {options}"),
        _ => format!("{here}: {}", error.masked()),
    }
}

/// Renders a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) as people write it: `/a/0/b` is `a[0].b`.
fn path(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push_str(&format!("[{part}]"));
        } else {
            path.push_str(if path.is_empty() { "" } else { "." });
            path.push_str(&part);
        }
    }
    path
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
