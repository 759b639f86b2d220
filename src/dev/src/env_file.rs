//! The file of variables, `.env`: what would be in Secrets of a cluster.
//!
//! Lines are `KEY=VALUE`, with `export` before them or not. A value may be in single quotes, as it is, or in double quotes, with
//! escapes; both may go over several lines. Nothing is replaced within a value: a credential may have any character.

use std::collections::BTreeMap;

/// Variables by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// Reads the variables of a text. The last one of a name counts.
///
/// # Errors
/// Line and cause of the first line that is none.
pub(crate) fn read(text: &str) -> Result<Variables, (usize, String)> {
    let mut variables = Variables::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut line = 1;
    while !rest.is_empty() {
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let words = first.trim();
        if words.is_empty() || words.starts_with('#') {
            (rest, line) = (after, line + 1);
            continue;
        }
        let fail = |cause: &str| (line, cause.to_owned());
        let (name, _) = first.split_once('=').ok_or_else(|| fail("expected KEY=VALUE"))?;
        let trimmed = name.trim();
        let trimmed = trimmed.strip_prefix("export ").unwrap_or(trimmed).trim();
        if !is_name(trimmed) {
            return Err(fail("a key has letters, digits, '_', '-' and '.' only"));
        }
        let behind = rest.get(name.len() + 1..).unwrap_or_default();
        let (value, length) = value(behind).map_err(|cause| fail(&cause))?;
        variables.insert(trimmed.to_owned(), value);
        let (taken, left) = behind.split_at_checked(length).unwrap_or((behind, ""));
        line += taken.matches('\n').count() + 1;
        rest = left.split_once('\n').map_or("", |(_, after)| after);
    }
    Ok(variables)
}

/// Reports whether a Secret may have such a key.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|character| character.is_ascii_alphanumeric() || "_-.".contains(character))
}

/// Returns the value at the beginning of a text, and how many bytes it takes of it.
fn value(text: &str) -> Result<(String, usize), String> {
    let line = text.split('\n').next().unwrap_or_default();
    let begin = line.len() - line.trim_start().len();
    let (value, end) = match text.get(begin..).and_then(|rest| rest.chars().next()) {
        Some(quote @ ('"' | '\'')) => {
            let (value, length) = quoted(text.get(begin + 1..).unwrap_or_default(), quote)?;
            (value, begin + 1 + length)
        }
        _ => {
            // A comment follows a blank; a '#' within a value belongs to it.
            let end = line.find(" #").or_else(|| line.find("\t#")).unwrap_or(line.len());
            return Ok((line.get(..end).unwrap_or_default().trim().to_owned(), line.len()));
        }
    };
    let behind = text.get(end..).unwrap_or_default().split('\n').next().unwrap_or_default();
    match behind.trim() {
        "" => Ok((value, end)),
        comment if comment.starts_with('#') => Ok((value, end)),
        _ => Err("text follows the closing quote".to_owned()),
    }
}

/// Returns what is within quotes, and the length with the closing one.
fn quoted(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            _ if character == quote => return Ok((value, at + quote.len_utf8())),
            '\\' if quote == '"' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, 't')) => value.push('\t'),
                Some((_, other @ ('"' | '\\' | '$' | '`' | '\''))) => value.push(other),
                Some((_, other)) => value.extend(['\\', other]),
                None => break,
            },
            _ => value.push(character),
        }
    }
    Err("the quote is not closed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are() {
        let cases = [
            ("A=1", vec![("A", "1")]),
            ("export A=1\r\n\n# no\nB = two words \n", vec![("A", "1"), ("B", "two words")]),
            ("A=x#y # comment", vec![("A", "x#y")]),
            ("A=", vec![("A", "")]),
            ("A='$x \\n' # c\nB=\"a\\nb\\\"$c\\d\"", vec![("A", "$x \\n"), ("B", "a\nb\"$c\\d")]),
            ("A=\"one\ntwo\"\nB=3", vec![("A", "one\ntwo"), ("B", "3")]),
            ("A=1\nA=2", vec![("A", "2")]),
            ("a.b-c=d=e", vec![("a.b-c", "d=e")]),
            ("KEY=sk-\u{e9}", vec![("KEY", "sk-\u{e9}")]),
        ];
        for (text, expected) in cases {
            let expected: Variables =
                expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            assert_eq!(read(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let cases = [
            ("A=1\nhello", 2, "expected KEY=VALUE"),
            ("A B=1", 1, "a key has letters"),
            ("=1", 1, "a key has letters"),
            ("A=1\nB=\"x\ny\nC=2", 2, "the quote is not closed"),
            ("A=\"x\ny\"\nB='z' w", 3, "text follows"),
        ];
        for (text, line, cause) in cases {
            let (found, message) = read(text).unwrap_err();
            assert_eq!(found, line, "{text:?}");
            assert!(message.contains(cause), "{text:?}: {message}");
        }
    }
}
