//! Structured output: validates an answer that must be JSON.
//!
//! Models tend to put JSON into a Markdown code fence, even where the prompt forbids it, so a fence around the whole answer is
//! removed.

use serde_json::Value;

use crate::{models::OutputFormat, tools::Schema};

/// Required format of an answer.
pub(super) struct JsonOutput {
    schema: Option<Schema>,
}

impl JsonOutput {
    /// Requires JSON that matches `schema`; any JSON without one.
    ///
    /// # Errors
    /// The schema is invalid; the text says where.
    pub(super) fn new(schema: Option<Value>) -> Result<Self, String> {
        Ok(Self { schema: schema.map(Schema::new).transpose()? })
    }

    /// Returns the format for the request to the model.
    pub(super) fn format(&self) -> OutputFormat {
        OutputFormat { schema: self.schema.as_ref().map(|schema| schema.json().clone()) }
    }

    /// Returns the JSON text in `answer`.
    ///
    /// # Errors
    /// It is not JSON, or does not match the schema; the text says where.
    pub(super) fn check<'a>(&self, answer: &'a str) -> Result<&'a str, String> {
        let json = strip_fence(answer);
        let value = serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
        match &self.schema {
            Some(schema) => schema.check(&value).map(|()| json),
            None => Ok(json),
        }
    }
}

/// Removes a Markdown code fence around `text`.
fn strip_fence(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inside.and_then(|inside| inside.split_once('\n')) {
        Some((language, inside)) if !language.contains('`') => inside.trim(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_passes_as_json() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}});
        let output = JsonOutput::new(Some(schema)).unwrap();
        for (answer, found) in [
            (" {\"n\": [1]}\n", Ok("{\"n\": [1]}")),
            ("```json\n{\"n\": []}\n```", Ok("{\"n\": []}")),
            ("```\n{}\n```", Ok("{}")),
            ("{\"n\": [1, \"x\"]}", Err("/n/1: \"x\" is not of type \"integer\"")),
            ("Here: {}", Err("it is not JSON: expected value at line 1 column 1")),
            ("", Err("it is not JSON: EOF while parsing a value at line 1 column 0")),
        ] {
            assert_eq!(output.check(answer), found.map_err(String::from), "{answer}");
        }
        assert_eq!(JsonOutput::new(None).unwrap().check("3"), Ok("3"));
        assert!(JsonOutput::new(Some(json!({"type": "thing"}))).is_err());
    }
}
