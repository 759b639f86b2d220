//! Prints, compares and serializes JSON values as JavaScript does, and with it the reference.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Renders `value` as a template prints it: nothing for `null`, a list joined by commas.
pub(super) fn print(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(yes) => yes.to_string(),
        Value::Number(it) => number(it),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(print).collect::<Vec<_>>().join(","),
        Value::Object(_) => "[object Object]".into(),
    }
}

/// Reports whether `{{#if}}` takes its first branch: for an empty list it does not, for an empty object it does.
pub(super) fn is_truthy(value: &Value, include_zero: bool) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(it) => include_zero || it.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(_) => true,
    }
}

/// Compares as `===` does, except that two lists or objects of the same content are equal.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

/// Returns `value[key]`, `None` for `undefined`. Lists and strings have a `length`.
pub(super) fn property(value: &Value, key: &str) -> Option<Value> {
    let index = || key.parse::<usize>().ok().filter(|index| index.to_string() == key);
    match value {
        Value::Object(fields) => fields.get(key).cloned(),
        Value::Array(list) if key == "length" => Some(list.len().into()),
        Value::Array(list) => list.get(index()?).cloned(),
        Value::String(text) if key == "length" => Some(text.encode_utf16().count().into()),
        Value::String(text) => {
            let unit = text.encode_utf16().nth(index()?)?;
            char::from_u32(unit.into()).map(|c| c.to_string().into())
        }
        _ => None,
    }
}

/// Serializes as `JSON.stringify(value, null, indent)` does, with the keys of objects sorted.
pub(super) fn stringify(value: &Value, indent: &str) -> String {
    let mut out = String::new();
    write_json(value, indent, "\n", &mut out);
    out
}

/// Writes `value`; `line` is a line end with the indentation of the line that `value` is in.
fn write_json(value: &Value, indent: &str, line: &str, out: &mut String) {
    let inner = format!("{line}{indent}");
    let separate = |out: &mut String, first: bool| {
        out.push_str(if first { "" } else { "," });
        out.push_str(if indent.is_empty() { "" } else { &inner });
    };
    match value {
        Value::Number(it) => out.push_str(&number(it)),
        Value::Array(list) if !list.is_empty() => {
            out.push('[');
            for (at, element) in list.iter().enumerate() {
                separate(out, at == 0);
                write_json(element, indent, &inner, out);
            }
            out.push_str(if indent.is_empty() { "" } else { line });
            out.push(']');
        }
        Value::Object(fields) if !fields.is_empty() => {
            out.push('{');
            for (at, (key, field)) in fields.iter().enumerate() {
                separate(out, at == 0);
                let colon = if indent.is_empty() { ":" } else { ": " };
                let _ = write!(out, "{}{colon}", Value::from(key.as_str()));
                write_json(field, indent, &inner, out);
            }
            out.push_str(if indent.is_empty() { "" } else { line });
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// Renders a number as JavaScript does: `1` for 1.0, an exponent from 1e21 on and below 1e-6. Integers keep all their digits.
fn number(number: &Number) -> String {
    let (false, Some(float)) = (number.is_i64() || number.is_u64(), number.as_f64()) else { return number.to_string() };
    if float == 0.0 {
        return "0".into();
    }
    if (1e-6..1e21).contains(&float.abs()) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    if text.contains("e-") { text } else { text.replace('e', "e+") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_javascript_does() {
        for (value, text) in [
            (json!(null), ""),
            (json!(false), "false"),
            (json!(1.0), "1"),
            (json!(-0.0), "0"),
            (json!(0.1), "0.1"),
            (json!(1e21), "1e+21"),
            (json!(123_456_789_012_345_680_000_u128 as f64), "123456789012345680000"),
            (json!(1.5e-7), "1.5e-7"),
            (json!(9_007_199_254_740_993_u64), "9007199254740993"),
            (json!([1, null, ["a", {}]]), "1,,a,[object Object]"),
        ] {
            assert_eq!(print(&value), text, "{value}");
        }
    }

    #[test]
    fn json_is_written_as_javascript_does() {
        let value = json!({"b": [1.0, "\u{1}\n\"é"], "a": {}, "c": [], "d": [{"x": null}]});
        let compact = r#"{"a":{},"b":[1,"\u0001\n\"é"],"c":[],"d":[{"x":null}]}"#;
        assert_eq!(stringify(&value, ""), compact);
        let pretty = "{\n \"a\": {},\n \"b\": [\n  1,\n  \"\\u0001\\n\\\"é\"\n ],\n \"c\": [],\n \"d\": [\n  {\n   \"x\": null\n  }\n ]\n}";
        assert_eq!(stringify(&value, " "), pretty);
    }

    #[test]
    fn properties_are_those_of_javascript() {
        assert_eq!(property(&json!({"a": null}), "a"), Some(json!(null)));
        assert_eq!(property(&json!({"length": 9}), "length"), Some(json!(9)));
        assert_eq!(property(&json!([7, 8]), "length"), Some(json!(2)));
        assert_eq!(property(&json!([7, 8]), "1"), Some(json!(8)));
        assert_eq!(property(&json!([7, 8]), "01"), None);
        assert_eq!(property(&json!("é😀"), "length"), Some(json!(3)));
        assert_eq!(property(&json!("é"), "0"), Some(json!("é")));
        assert_eq!(property(&json!(5), "length"), None);
    }
}
