//! Values as Go prints them in messages: the verbs `%q`, `%v` and `%#v` of its package `fmt`.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Returns a text as `%q` prints it.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_ascii_control() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c if c.is_control() => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns a number as `%v` prints it, without the fraction of a whole one.
pub(super) fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float.to_string(),
        _ => number.to_string(),
    }
}

/// Returns the bad value of a field error: scalars plainly, texts quoted, the rest as JSON.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "\"null\"".to_owned(),
        Value::String(text) => quoted(text),
        Value::Number(it) => number(it),
        other => other.to_string(),
    }
}

/// Returns an unstructured value as `%v` prints it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Number(it) => number(it),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}:{}", plain(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

/// Returns an unstructured value as `%#v` prints it.
pub(super) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("{}{{{}}}", type_name(value), items.iter().map(syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Number(it) => number(it),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{}:{}", quoted(name), syntax(value)));
            format!("{}{{{}}}", type_name(value), fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns the Go type of an unstructured value, as `%T` prints it.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
