//! Masks credentials in an object before it is kept.
//!
//! The operator splits what it renders into ConfigMaps and Secrets. Values that it would put into a Secret are masked here: a
//! database's URL, headers of tools, URLs with a password. A spec may hold further ones by mistake: values of variables and
//! settings whose names mark them as credentials, wherever they stand. References to a Secret are not masked; they are no
//! secret.

use serde_json::{Map, Value};

use super::{
    arguments::mask_arguments,
    credentials::{MASKED, is_credential, is_name, is_number_of_tokens, mask_urls, normalized},
};

/// Reports whether the text of an annotation is a copy of a whole object, as `kubectl apply`, kapp, Argo CD and others write
/// it: as JSON, also within JSON, or as YAML. Rancher compresses it; compressed texts (gzip in base64, which begins with
/// `H4sI`) count as copies, because people cannot read them anyway.
fn is_copy(text: &str) -> bool {
    text.contains("\"spec\"") || text.contains("spec\\\"") || text.contains("\nspec:") || text.starts_with("H4sI")
}

/// Masks an object, and removes its managed fields and annotations that are copies of it.
pub(super) fn mask_object(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|_, text| !text.as_str().is_some_and(is_copy));
        }
    }
    // A status repeats addresses of the spec, and error texts of other programs.
    for part in ["spec", "status"] {
        object.get_mut(part).into_iter().for_each(|part| mask_value("", part));
    }
}

/// Masks a value of this field.
fn mask_value(field: &str, value: &mut Value) {
    match value {
        Value::Object(fields) => mask_fields(field, fields),
        Value::Array(elements) if matches!(field, "args" | "command") => mask_arguments(elements),
        Value::Array(elements) => elements.iter_mut().for_each(|element| mask_value(field, element)),
        Value::String(text) => *text = mask_urls(text),
        _ => {}
    }
}

fn mask_fields(field: &str, fields: &mut Map<String, Value>) {
    // `{name, value}`: a variable, a header or a parameter. Fields beside the value, such as valueFrom, only refer to one.
    let named = fields.get("name").and_then(Value::as_str).map(str::to_owned);
    let named = named.filter(|name| is_credential(name));
    let header = field == "headersFrom";
    for (name, value) in fields.iter_mut() {
        let whole = match name.as_str() {
            _ if is_reference(name) => false,
            "value" | "default" => header || named.as_deref().is_some_and(|name| !is_count(name, value)),
            "databaseUrl" => true,
            _ if field == "headers" => true,
            _ if field == "properties" && is_schema(value) => {
                if is_credential(name) {
                    mask_examples(value);
                }
                false
            }
            // A map of variables or settings, whose keys are their names.
            _ => (is_settings(field) || field == "properties") && is_credential(name) && !is_count(name, value),
        };
        match value {
            _ if whole => mask_all(value),
            // Settings may be nested.
            Value::Object(_) | Value::Array(_) if is_settings(field) && !leaves_settings(name) => {
                mask_value(field, value)
            }
            _ => mask_value(name, value),
        }
    }
}

/// Masks every value that may be a credential below a name that marks one.
fn mask_all(value: &mut Value) {
    match value {
        Value::String(text) if text.is_empty() => {}
        Value::String(_) | Value::Number(_) => *value = MASKED.into(),
        Value::Array(elements) => elements.iter_mut().for_each(mask_all),
        Value::Object(fields) => {
            fields.iter_mut().filter(|(name, _)| !is_reference(name)).for_each(|(_, value)| mask_all(value));
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Reports whether a value is a JSON Schema.
fn is_schema(value: &Value) -> bool {
    ["type", "$ref", "anyOf", "oneOf", "allOf", "description"].iter().any(|field| value.get(field).is_some())
}

/// Masks the example values in a schema.
fn mask_examples(schema: &mut Value) {
    for field in ["default", "const", "enum", "example", "examples"] {
        schema.get_mut(field).into_iter().for_each(mask_all);
    }
}

/// Reports whether a field holds a map with keys of the user's choice.
fn is_settings(field: &str) -> bool {
    matches!(field, "env" | "extraConfig" | "defaultConfig" | "info")
}

/// Reports whether a field within settings is no setting itself.
fn leaves_settings(field: &str) -> bool {
    let other = matches!(field, "args" | "command" | "headers" | "headersFrom" | "properties");
    other || matches!(field, "inputSchema" | "outputSchema") || is_reference(field)
}

fn is_reference(field: &str) -> bool {
    field.ends_with("Ref") || field == "valueFrom"
}

/// Reports whether a value is a number of tokens.
fn is_count(name: &str, value: &Value) -> bool {
    match value {
        Value::Number(_) => normalized(name).ends_with("tokens"),
        Value::String(text) => is_number_of_tokens(name, text),
        _ => false,
    }
}

/// Masks the credentials in a text that was rendered under this name.
pub(crate) fn mask_rendered(name: &str, text: &str) -> String {
    if is_credential(name) && !text.is_empty() && !is_number_of_tokens(name, text) {
        return MASKED.to_owned();
    }
    let parsed = serde_json::from_str::<Value>(text).ok().filter(|value| value.is_object() || value.is_array());
    let Some(parsed) = parsed else {
        return text.split_inclusive('\n').map(mask_setting).collect();
    };
    let mut masked = parsed.clone();
    mask_value("info", &mut masked);
    match masked == parsed {
        true => text.to_owned(),
        false if text.contains('\n') => format!("{masked:#}"),
        false => masked.to_string(),
    }
}

/// Masks a line of a text, which may be `name: value` or `name=value`.
fn mask_setting(text: &str) -> String {
    let at = text.find([':', '=']).filter(|at| {
        let name = text[..*at].trim_matches(|c: char| c.is_whitespace() || "-\"'".contains(c));
        let value = text[at + 1..].trim();
        let credential = is_name(name) && is_credential(name) && !is_number_of_tokens(name, value);
        credential && !value.is_empty() && !value.starts_with("//")
    });
    match at {
        Some(at) => {
            let end = if text.ends_with('\n') { "\n" } else { "" };
            format!("{} {MASKED}{end}", &text[..=at])
        }
        None => mask_urls(text),
    }
}

#[cfg(test)]
mod tests;
