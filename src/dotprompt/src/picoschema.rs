//! Converts Picoschema, the short form of JSON Schema that a frontmatter may use.
//!
//! `name: string, the user's name` is a required property, `name?: string` an optional one that may also be null;
//! `tags(array, what it is about): string`, `address(object):` and `kind(enum): [a, b]` say what the name cannot, and `(*): number` is the
//! type of every other property. A schema that is JSON Schema already stays as it is.

use serde_json::{Map, Value, json};

/// Types that are written as one word.
const SCALARS: [&str; 6] = ["any", "boolean", "integer", "null", "number", "string"];

/// Converts `schema` to JSON Schema. `place` names it in errors (`input.schema`).
///
/// # Errors
/// The first error, with its property.
pub(super) fn to_json_schema(schema: &Value, place: &str) -> Result<Value, String> {
    let fields = match schema {
        Value::String(text) => return scalar(text, place),
        Value::Object(fields) => fields,
        other => return Err(unexpected_type(other, place)),
    };
    let written = fields.get("type").and_then(Value::as_str);
    if written.is_some_and(|name| SCALARS.contains(&name) || matches!(name, "object" | "array")) {
        let mut fields = fields.clone();
        if written == Some("any") {
            fields.remove("type");
        }
        return Ok(Value::Object(fields));
    }
    if fields.get("properties").is_some_and(Value::is_object) {
        let mut fields = fields.clone();
        fields.insert("type".into(), "object".into());
        return Ok(Value::Object(fields));
    }
    object(fields, place)
}

/// Converts a type, or an object of properties.
fn convert(schema: &Value, place: &str) -> Result<Value, String> {
    match schema {
        Value::String(text) => scalar(text, place),
        Value::Object(fields) => object(fields, place),
        other => Err(unexpected_type(other, place)),
    }
}

fn unexpected_type(found: &Value, place: &str) -> String {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::Array(_) => "a list",
        Value::String(_) | Value::Object(_) => "something else",
    };
    format!("`{place}` must be a type such as `string`, or properties with their types; it is {found}")
}

/// Converts `type` or `type, description`.
fn scalar(text: &str, place: &str) -> Result<Value, String> {
    let (name, description) = split_description(text);
    if !SCALARS.contains(&name) {
        let known = SCALARS.join(", ");
        return Err(format!("`{place}` has the unknown type `{name}`; the types are {known}"));
    }
    let mut schema = Map::new();
    if name != "any" {
        schema.insert("type".into(), name.into());
    }
    if let Some(description) = description {
        schema.insert("description".into(), description.into());
    }
    Ok(Value::Object(schema))
}

fn split_description(text: &str) -> (&str, Option<&str>) {
    text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest.trim_start_matches(' '))))
}

fn object(fields: &Map<String, Value>, place: &str) -> Result<Value, String> {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    let mut others = Value::Bool(false);
    for (key, value) in fields {
        if key == "(*)" {
            others = convert(value, &format!("{place}.(*)"))?;
            continue;
        }
        let (name, kind) = match key.split_once('(') {
            Some((name, rest)) => {
                let kind = rest.strip_suffix(')');
                (name, Some(kind.ok_or_else(|| format!("`{place}.{key}` lacks its closing parenthesis"))?))
            }
            None => (key.as_str(), None),
        };
        let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
        let place = format!("{place}.{name}");
        let schema = match kind {
            None => convert(value, &place)?,
            Some(kind) => of_kind(kind, value, &place)?,
        };
        if !optional {
            required.push(Value::from(name));
        }
        properties.insert(name.to_owned(), if optional { nullable(schema) } else { schema });
    }
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": others});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    Ok(schema)
}

/// Converts the property whose name is followed by `(kind, description)`.
fn of_kind(kind: &str, value: &Value, place: &str) -> Result<Value, String> {
    let (kind, description) = split_description(kind);
    let mut schema = match kind {
        "array" => json!({"type": "array", "items": convert(value, place)?}),
        "object" if value.is_object() => convert(value, place)?,
        "object" => return Err(format!("`{place}` is an object, so it needs properties with their types")),
        "enum" if value.is_array() => json!({"enum": value}),
        "enum" => return Err(format!("`{place}` is an enum, so it needs the list of its values")),
        other => return Err(format!("`{place}` is of the unknown kind `({other})`; it can be array, object or enum")),
    };
    if let Some(description) = description {
        schema["description"] = description.into();
    }
    Ok(schema)
}

/// Returns a schema that admits null as well, as the reference does for an optional property.
fn nullable(mut schema: Value) -> Value {
    if let Some(name) = schema.get("type").filter(|name| name.is_string() && *name != "null").cloned() {
        schema["type"] = json!([name, "null"]);
    }
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut)
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    schema
}
