//! The two parts of a Dotprompt text: YAML frontmatter between two lines `---`, the first of which begins the text, and
//! the template. The runner reads texts by the same rules.

use serde_json::{Map, Value};

/// Why the frontmatter of a text cannot be read, with the line of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadFrontmatter {
    line: usize,
    problem: String,
}

/// The YAML of the frontmatter, if there is one, and the template without the white space around it; a text without
/// frontmatter is a template verbatim.
///
/// # Errors
/// A frontmatter that does not end.
pub fn split(text: &str) -> Result<(Option<&str>, &str), BadFrontmatter> {
    let marked = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = marked.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else { return Ok((None, text)) };
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            let yaml = marked.get(first.len()..end);
            let template = marked.get(end + line.len()..).unwrap_or_default();
            return Ok((yaml, template.trim()));
        }
        end += line.len();
    }
    let problem = "the frontmatter that begins here does not end: add a line `---` after it".to_owned();
    Err(BadFrontmatter { line: 1, problem })
}

/// The frontmatter as read; `None` when there is none or nothing in it.
///
/// # Errors
/// A frontmatter that does not end, is not YAML, or has no fields.
pub fn read(text: &str) -> Result<Option<Map<String, Value>>, BadFrontmatter> {
    let Some(yaml) = split(text)?.0 else { return Ok(None) };
    let yaml: serde_yaml::Value = serde_yaml::from_str(yaml).map_err(|error| {
        // The text's first line is the one before the YAML's.
        let line = error.location().map_or(1, |location| location.line()) + 1;
        let said = error.to_string();
        // It counts lines from the YAML's first.
        let said = said.split(" at line ").next().unwrap_or_default();
        BadFrontmatter { line, problem: format!("the frontmatter is not YAML: {said}") }
    })?;
    match to_json(yaml).map_err(|problem| BadFrontmatter { line: 2, problem })? {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        _ => Err(BadFrontmatter { line: 2, problem: "the frontmatter must be lines of `key: value`".to_owned() }),
    }
}

/// YAML as JSON: keys become strings. What JSON does not have is refused, as by the runner.
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
            assert_eq!(split(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn it_is_read_as_json() {
        let text =
            "---\nmodel: openai/gpt\nconfig: { temperature: 0.5 }\n1: one\ninput:\n  schema: { n: integer }\n---\nHi";
        let expected = json!({
            "model": "openai/gpt", "config": { "temperature": 0.5 }, "1": "one",
            "input": { "schema": { "n": "integer" } },
        });
        assert_eq!(read(text).unwrap().map(Value::Object), Some(expected));
        assert_eq!(read("---\n# nothing\n---\nHi"), Ok(None));
        assert_eq!(read("Hi"), Ok(None));
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
