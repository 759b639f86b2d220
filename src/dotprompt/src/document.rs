//! Splits a Dotprompt text into its two parts: YAML frontmatter between two lines `---`, the first of which begins the text, and
//! the template.

use serde_json::{Map, Value};

use super::error::PromptError;

/// Parts of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Document<'t> {
    /// YAML, if there is any, which begins on line 2.
    pub(super) frontmatter: Option<&'t str>,
    /// Template: after a frontmatter without the white space around it; without a frontmatter the text, verbatim.
    pub(super) template: &'t str,
    /// Number of lines of the text before the template's first.
    pub(super) lines_before: usize,
}

/// Splits a text into its parts.
///
/// # Errors
/// A frontmatter that does not end.
pub(super) fn split(text: &str) -> Result<Document<'_>, PromptError> {
    let marked = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = marked.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else {
        return Ok(Document { frontmatter: None, template: text, lines_before: 0 });
    };
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            let after = marked.get(end + line.len()..).unwrap_or_default();
            let template = after.trim_start();
            let before = marked.get(..marked.len() - template.len()).unwrap_or_default();
            return Ok(Document {
                frontmatter: marked.get(first.len()..end),
                template: template.trim_end(),
                lines_before: before.matches('\n').count(),
            });
        }
        end += line.len();
    }
    let problem = "the frontmatter that begins here does not end: add a line `---` after it";
    Err(PromptError::at(1, problem))
}

/// Deepest nesting of lists and fields in brackets. The YAML reader gives up at 128, after a time that grows with the square of
/// the open brackets: half a MiB of `[` took minutes.
const NESTED: usize = 256;
/// Most brackets in all.
const BRACKETS: usize = 4096;

/// Parses the fields of a frontmatter, keys as strings; none if it is empty.
///
/// # Errors
/// A frontmatter that is not YAML, has no fields, or is not possible in JSON, with the line in its text.
pub(super) fn fields(yaml: &str) -> Result<Map<String, Value>, PromptError> {
    if let Some(line) = too_deep(yaml) {
        let bound = format!("the frontmatter has more than {NESTED} brackets within one another, or {BRACKETS} in all");
        return Err(PromptError::at(line + 1, bound));
    }
    let yaml: serde_yaml::Value = serde_yaml::from_str(yaml).map_err(|error| {
        // The text's first line is the one before the YAML's.
        let line = error.location().map_or(1, |location| location.line()) + 1;
        let message = error.to_string();
        // The message counts lines from the YAML's first.
        let message = message.split(" at line ").next().unwrap_or_default();
        PromptError::at(line, format!("the frontmatter is not YAML: {message}"))
    })?;
    match to_json(yaml).map_err(|problem| PromptError::at(2, problem))? {
        Value::Null => Ok(Map::new()),
        Value::Object(fields) => Ok(fields),
        _ => Err(PromptError::at(2, "the frontmatter must be lines of `key: value`")),
    }
}

/// Returns the line, from 1, in which more than [`NESTED`] brackets may be open, or more than [`BRACKETS`] have begun. A closing
/// bracket in a comment or in quotes closes nothing but is counted like any other, so the number in all is limited as well.
fn too_deep(yaml: &str) -> Option<usize> {
    let (mut open, mut all) = (0_usize, 0_usize);
    let at = yaml.bytes().position(|byte| {
        match byte {
            b'[' | b'{' => (open, all) = (open + 1, all + 1),
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        open > NESTED || all > BRACKETS
    })?;
    Some(yaml.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1)
}

/// Converts YAML to JSON: keys become strings. Values that JSON does not have are refused.
fn to_json(yaml: serde_yaml::Value) -> Result<Value, String> {
    Ok(match yaml {
        serde_yaml::Value::Mapping(fields) => {
            let field = |(key, value)| Ok::<_, String>((to_key(key)?, to_json(value)?));
            Value::Object(fields.into_iter().map(field).collect::<Result<_, _>>()?)
        }
        serde_yaml::Value::Sequence(items) => Value::Array(items.into_iter().map(to_json).collect::<Result<_, _>>()?),
        serde_yaml::Value::Tagged(tagged) => {
            return Err(format!("the frontmatter has the tag `{}`, which is not supported", tagged.tag));
        }
        serde_yaml::Value::Number(number) if number.as_f64().is_some_and(|number| !number.is_finite()) => {
            return Err(format!("the frontmatter has the number {number}, which JSON does not have"));
        }
        scalar => {
            serde_json::to_value(scalar).map_err(|error| format!("the frontmatter cannot be kept as JSON: {error}"))?
        }
    })
}

fn to_key(key: serde_yaml::Value) -> Result<String, String> {
    match to_json(key)? {
        Value::String(text) => Ok(text),
        key @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Ok(key.to_string()),
        Value::Array(_) | Value::Object(_) => Err("a key of the frontmatter is a list or has fields".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_has_a_frontmatter_only_between_two_lines_of_dashes_at_its_beginning() {
        for (text, expected) in [
            ("---\nmodel: x\n---\nHello {{name}}\n", (Some("model: x\n"), "Hello {{name}}")),
            ("---\r\nmodel: x\r\n---\r\n\r\nHello\r\n", (Some("model: x\r\n"), "Hello")),
            ("\u{feff}---\na: 1\n---\nHi", (Some("a: 1\n"), "Hi")),
            ("---\n---\nHi", (Some(""), "Hi")),
            ("---\na: 1\n---", (Some("a: 1\n"), "")),
            ("---  \na: 1\n--- \nHi\n---\nmore", (Some("a: 1\n"), "Hi\n---\nmore")),
            (" ---\na: 1\n---\n", (None, " ---\na: 1\n---\n")),
            ("Hello\n---\n", (None, "Hello\n---\n")),
            ("----\n", (None, "----\n")),
            ("", (None, "")),
        ] {
            let parts = split(text).map(|parts| (parts.frontmatter, parts.template));
            assert_eq!(parts, Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn a_frontmatter_that_is_nested_without_end_is_refused_at_once() {
        let begin = std::time::Instant::now();
        let error = read(&format!("---\na: 1\nb: {}\n---\n", "[".repeat(500_000))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 3: the frontmatter has more than 256 brackets within one another, or 4096 in all"
        );
        assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
        let commented = read(&format!("---\na: 1\nb: {}\n---\n", "[#]\n".repeat(200_000))).unwrap_err();
        assert!(commented.to_string().contains("4096 in all"), "{commented}");
        assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
        assert!(read(&format!("---\na: {}1{}\n---\n", "[".repeat(100), "]".repeat(100))).is_ok());
        assert!(read(&format!("---\na: [{}]\n---\n", "{}, ".repeat(1_000))).is_ok());
    }

    #[test]
    fn the_lines_before_a_template_are_counted() {
        for (text, expected) in [("Hi", 0), ("---\n---\nHi", 2), ("---\na: 1\n---\n\n \nHi\nyou", 5), ("---\n---", 1)] {
            assert_eq!(split(text).map(|parts| parts.lines_before), Ok(expected), "{text:?}");
        }
    }

    /// Returns the fields of the frontmatter of a text.
    fn read(text: &str) -> Result<Map<String, Value>, PromptError> {
        fields(split(text)?.frontmatter.unwrap_or_default())
    }

    #[test]
    fn it_is_read_as_json() {
        let text =
            "---\nmodel: openai/gpt\nconfig: { temperature: 0.5 }\n1: one\ninput:\n  schema: { n: integer }\n---\nHi";
        let expected = json!({
            "model": "openai/gpt", "config": { "temperature": 0.5 }, "1": "one",
            "input": { "schema": { "n": "integer" } },
        });
        assert_eq!(read(text).map(Value::Object), Ok(expected));
        assert_eq!(read("---\n# nothing\n---\nHi"), Ok(Map::new()));
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        for (text, begins) in [
            ("---\nmodel: x\nconfig: [1\n---\nHi", "line 4: the frontmatter is not YAML: "),
            ("---\nmodel: x\nconfig: a: b\nmore: 1\n---\nHi", "line 3: the frontmatter is not YAML: "),
            ("---\na: 1\na: 2\n---\nHi", "line 2: the frontmatter is not YAML: "),
            ("---\nmodel: x\n", "line 1: the frontmatter that begins here does not end"),
            ("---\n- a\n---\nHi", "line 2: the frontmatter must be lines of `key: value`"),
            ("---\n? [a]\n: 1\n---\nHi", "line 2: a key of the frontmatter is a list"),
            ("---\na: !secret b\n---\nHi", "line 2: the frontmatter has the tag `!secret`"),
            ("---\na: .inf\n---\nHi", "line 2: the frontmatter has the number .inf"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(begins), "{text:?}: {error}");
        }
    }
}
