//! `$NAME` and `${NAME}` in a header's value, replaced from the environment.
//!
//! Credentials reach an agent as environment variables, and a tool only refers to them. A reference to a variable that
//! is not set is an error: a request with an empty credential would be answered with a riddle. Any other `$` stays.

use std::collections::BTreeMap;
use std::fmt;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::ToolError;

/// The headers of a tool: name, and value with references to the environment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Headers(Vec<(HeaderName, HeaderText)>);

/// A header's value before its references are replaced. It may hold a credential, so it is never printed.
#[derive(Clone, PartialEq)]
struct HeaderText(String);

impl fmt::Debug for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Headers {
    /// Reads them as they are rendered.
    ///
    /// # Errors
    /// What is wrong, without a value.
    pub(super) fn read(headers: &BTreeMap<String, String>) -> Result<Self, String> {
        let named = |(name, value): (&String, &String)| match name.parse() {
            Ok(parsed) => Ok((parsed, HeaderText(value.clone()))),
            Err(_) => Err(format!("`{name}` is not a header name")),
        };
        Ok(Self(headers.iter().map(named).collect::<Result<_, _>>()?))
    }

    /// As they are sent.
    ///
    /// # Errors
    /// What is wrong, without a value.
    pub(super) fn expand(
        &self,
        environment: &(dyn Fn(&str) -> Option<String> + Send + Sync),
    ) -> Result<HeaderMap, ToolError> {
        let mut headers = HeaderMap::new();
        for (name, HeaderText(value)) in &self.0 {
            let value = expand(value, environment).map_err(|variable| {
                ToolError::Failed(format!(
                    "header {name} refers to the environment variable {variable}, which is not set"
                ))
            })?;
            // A mounted secret often ends with a newline, which no header may hold.
            let mut value = HeaderValue::from_str(value.trim_end_matches(['\r', '\n']))
                .map_err(|_| ToolError::Failed(format!("header {name} has a value that no header may hold")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// `value` with its references replaced.
///
/// # Errors
/// The name of the first variable that is not set.
pub(super) fn expand(value: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, tail) = match after.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some((name, tail)) if name_length(name) == name.len() => (name, tail),
            _ => after.split_at(name_length(after)),
        };
        if name.is_empty() {
            out.push('$');
        } else {
            out.push_str(&lookup(name).ok_or_else(|| name.to_owned())?);
        }
        rest = if name.is_empty() { after } else { tail };
    }
    out.push_str(rest);
    Ok(out)
}

/// Length of the variable name `text` starts with (POSIX: a letter or `_`, then letters, digits, `_`).
fn name_length(text: &str) -> usize {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "KEY" => Some("k$KEY".into()),
            "A_1" => Some("one".into()),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced_once() {
        for (value, expected) in [
            ("plain", Ok("plain")),
            ("Bearer $KEY", Ok("Bearer k$KEY")),
            ("${KEY}x$A_1.", Ok("k$KEYxone.")),
            ("$KEYS", Err("KEYS")),
            ("${MISSING}", Err("MISSING")),
            ("cost $5 $", Ok("cost $5 $")),
            ("${}", Ok("${}")),
            ("${1}", Ok("${1}")),
            ("${KEY", Ok("${KEY")),
            ("$$KEY", Ok("$k$KEY")),
            ("${a-b}", Ok("${a-b}")),
        ] {
            assert_eq!(expand(value, lookup), expected.map(Into::into).map_err(String::from), "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_value_is_expanded_without_a_panic(value in ".*") {
            let _ = expand(&value, |_| Some(String::new()));
        }
    }
}
