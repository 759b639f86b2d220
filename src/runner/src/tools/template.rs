//! URL template: `{name}` in a tool's endpoint is replaced by an argument.
//!
//! An argument comes from a model and therefore may be chosen by anyone: it is
//! [percent-encoded](https://datatracker.ietf.org/doc/html/rfc3986#section-2.1) so that it stays within one path
//! segment (RFC 3986 section 2.3: only unreserved characters stay), and may not complete a segment to `.` or `..`,
//! which a URL parser would resolve. A placeholder in the scheme, host or port is refused when the tool is read.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use url::{Position, Url};

/// Characters that are encoded: all but the unreserved ones.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const IN_HOST: &str = "its endpoint has a `{parameter}` in the host; only the path and query may have one";

/// `http` or `https` URL with placeholders after its authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlTemplate {
    /// Pairs of literal text and the name of the placeholder that follows it.
    parts: Vec<(String, String)>,
    tail: String,
}

impl UrlTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// The problem, without quoting the template.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = trimmed(text).replace(['\t', '\n', '\r'], "");
        let text = text.as_str();
        let (scheme, rest) = text.split_once("://").ok_or("its endpoint is not an http or https URL")?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err("its endpoint is not an http or https URL");
        }
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or(rest);
        if authority.contains(['{', '}']) {
            return Err(IN_HOST);
        }
        let mut parts = Vec::new();
        let mut tail = text;
        while let Some((before, after)) = tail.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("its endpoint has a `{` without a `}`")?;
            if name.is_empty() || name.contains('{') {
                return Err("its endpoint has a `{}` without a parameter's name");
            }
            parts.push((before.to_owned(), name.to_owned()));
            tail = after;
        }
        let template = Self { parts, tail: tail.to_owned() };
        let beginning = |value: &str| -> Result<String, &'static str> {
            let filled = template.join(|_| Some(value.into())).unwrap_or_default();
            let url = Url::parse(&filled).map_err(|_| "its endpoint is not a URL")?;
            Ok(url[..Position::BeforePath].to_owned())
        };
        // URL parsers accept more than two slashes, for example, so the authority is compared as parsed.
        if beginning("x")? != beginning("y")? {
            return Err(IN_HOST);
        }
        Ok(template)
    }

    /// Returns the names of the placeholders, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(_, name)| name.as_str())
    }

    /// Builds the URL for `arguments` and removes the arguments that it used.
    ///
    /// # Errors
    /// The problem and its correction, for the model.
    pub(super) fn fill(&self, arguments: &mut BTreeMap<String, Value>) -> Result<Url, String> {
        if let Some(missing) = self.names().find(|name| !arguments.contains_key(*name)) {
            return Err(format!("`{missing}` is part of the URL and must be given"));
        }
        let text = self
            .join(|name| arguments.get(name).map(|value| utf8_percent_encode(&plain(value), ESCAPED).to_string()))
            .unwrap_or_default();
        let path = trimmed(&text).split(['?', '#']).next().unwrap_or_default();
        let dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
        if path.split(['/', '\\']).any(dots) {
            return Err("an argument may not turn a part of the URL's path into `.` or `..`".into());
        }
        let names: Vec<_> = self.names().collect();
        arguments.retain(|name, _| !names.contains(&name.as_str()));
        Url::parse(&text).map_err(|error| format!("the URL cannot be made: {error}"))
    }

    fn join(&self, value: impl Fn(&str) -> Option<String>) -> Option<String> {
        let mut text = String::new();
        for (before, name) in &self.parts {
            text.push_str(before);
            text.push_str(&value(name)?);
        }
        text.push_str(&self.tail);
        Some(text)
    }
}

/// Trims `text` as a URL parser does. Such a parser also drops tabs and line breaks; the checked text must be the one
/// that is sent.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

/// Formats a scalar for a URL: a string without quotes.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fill(template: &str, value: Value) -> Result<String, String> {
        let mut arguments = BTreeMap::from([("a".to_owned(), value), ("rest".to_owned(), json!(1))]);
        let url = UrlTemplate::parse(template).unwrap().fill(&mut arguments)?;
        assert_eq!(arguments.len(), if template.contains("{a}") { 1 } else { 2 });
        Ok(url.to_string())
    }

    #[test]
    fn an_argument_is_one_path_segment() {
        for (template, value, expected) in [
            ("http://h/x", json!("1"), "http://h/x"),
            ("http://h/{a}/y", json!("Zürich/Süd?x#y"), "http://h/Z%C3%BCrich%2FS%C3%BCd%3Fx%23y/y"),
            ("http://h/{a}", json!(5), "http://h/5"),
            ("http://h/{a}", json!(true), "http://h/true"),
            ("http://h/{a}", json!("../admin"), "http://h/..%2Fadmin"),
            ("http://h/{a}", json!("%2e%2e"), "http://h/%252e%252e"),
            ("http://h/{a}", json!("{a}"), "http://h/%7Ba%7D"),
            ("http://h/x?q={a}&r=1", json!("a b&c=d"), "http://h/x?q=a%20b%26c%3Dd&r=1"),
        ] {
            assert_eq!(fill(template, value).unwrap(), expected, "{template}");
        }
        for (template, value) in [
            ("http://h/{a}/y", ".."),
            ("http://h/{a}", "."),
            ("http://h/.{a}/y", "."),
            ("http://h/%2e{a}/y", "."),
            ("http://h/.{a}\n", "."),
            ("http://h/.\t{a}/y", "."),
            ("http://h/.. {a}", ""),
            ("http://h/{a}{a}", "."),
        ] {
            assert!(fill(template, json!(value)).is_err(), "{template} {value}");
        }
    }

    #[test]
    fn what_a_template_may_be() {
        for (text, good) in [
            ("http://h", true),
            ("HTTPS://h:8080/{a}/{b}?c={d}", true),
            ("http://{a}/x", false),
            ("http://h:{a}/x", false),
            ("http://u:{a}@h/x", false),
            ("http:///{a}/x", false),
            ("http://\\{a}/x", false),
            ("http:///h/{a}", true),
            ("http:\n//h/{a}\n", true),
            ("http:/\t/{a}/x", false),
            ("{a}://h/x", false),
            ("ftp://h/x", false),
            ("file:///x", false),
            ("h/x", false),
            ("http://h/{a", false),
            ("http://h/{}", false),
            ("http://h/{{a}}", false),
            ("http:///", false),
        ] {
            assert_eq!(UrlTemplate::parse(text).is_ok(), good, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_argument_leaves_its_segment(value in ".+") {
            if let Ok(url) = fill("http://h:1/before/{a}/after", json!(value)) {
                let url = Url::parse(&url).unwrap();
                prop_assert_eq!((url.host_str(), url.port(), url.query(), url.fragment()), (Some("h"), Some(1), None, None));
                let segments: Vec<_> = url.path_segments().unwrap().collect();
                prop_assert_eq!((segments.len(), segments[0], segments[2]), (3, "before", "after"));
            }
        }
    }
}
