//! Output of the node: the lines of programs, and notes of its own.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Container that a line or note is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Kind of its workload in lower case, such as `agent`.
    pub kind: String,
    /// Name of its workload.
    pub name: String,
    /// Name of the Pod.
    pub pod: String,
    /// Number of the Pod among those of one template, from 1.
    pub index: usize,
    /// Name of the container; empty for a note on the Pod.
    pub container: String,
}

/// Receiver of what the node shows. It is called from tasks of the runtime, so it must not block.
pub trait Output: Send + Sync {
    /// Receives a line of a container, without its line break.
    fn line(&self, source: &Source, text: &str);

    /// Receives a note of the node on a container, such as the end of a program with its last lines.
    fn note(&self, source: &Source, text: &str);
}

/// Returns a line of our programs' logs, which are JSON, as text: `INFO ready agent=a tools=2`. Any other line is returned as it is.
pub fn readable(line: &str) -> Cow<'_, str> {
    let text = line.trim_start();
    let fields: Option<Map<String, Value>> = text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten();
    let Some(mut fields) = fields else { return line.into() };
    let (Some(Value::String(level)), Some(Value::String(message))) = (fields.remove("level"), fields.remove("message"))
    else {
        return line.into();
    };
    let others = fields.into_iter().filter(|(name, _)| !matches!(name.as_str(), "timestamp" | "target"));
    let others = others.map(|(name, value)| match value {
        Value::String(text) if !text.is_empty() && !text.contains(char::is_whitespace) => format!(" {name}={text}"),
        value => format!(" {name}={value}"),
    });
    format!("{level} {message}{}", others.collect::<String>()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_json_is_shown_as_text() {
        let ours = r#"{"timestamp":"2026-01-02T03:04:05Z","level":"INFO","message":"ready","target":"runner","agent":"a","tools":2,"why":"a b"}"#;
        for (line, shown) in [
            (ours, r#"INFO ready agent=a tools=2 why="a b""#),
            (r#"{"level":"INFO"}"#, r#"{"level":"INFO"}"#),
            (r#"{"message":"m","level":3}"#, r#"{"message":"m","level":3}"#),
            ("{not json", "{not json"),
            ("  plain", "  plain"),
            ("", ""),
        ] {
            assert_eq!(readable(line), shown);
        }
    }
}
