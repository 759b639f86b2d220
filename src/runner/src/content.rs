//! Content of spans: texts without secrets, and no longer than a span may hold them.
//!
//! Secrets are replaced before a text is cut, so that no part of one stays at the cut. All are looked for in the text as it came: a
//! part of one that is replaced cannot hide another that overlaps with it.

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value, json};

/// Most bytes of an attribute.
pub(crate) const MAX_CONTENT: usize = 8 << 10;
/// Replacement for a secret.
const MASK: &str = "***";
/// Mark where a text is cut.
const CUT: &str = "… [cut]";
/// Fewest bytes of a text that is cut to make others fit.
const FEWEST: usize = 16;

/// What spans of a request may hold of its content.
pub(crate) struct ContentCapture {
    /// Values that they may not hold, the longest first: its length bounds how much of a text is read.
    secrets: Arc<[String]>,
}

impl ContentCapture {
    /// Creates the capture that leaves out these values, the longest of which is first.
    pub(crate) fn new(secrets: Arc<[String]>) -> Self {
        Self { secrets }
    }

    /// Returns the bytes of a text that are enough to know all that a span holds of it.
    pub(crate) fn window(&self) -> usize {
        MAX_CONTENT + self.longest() + 1
    }

    /// Returns a text without secrets, of at most `most` bytes with the mark where it is cut.
    pub(crate) fn text(&self, text: &str, most: usize) -> String {
        let longest = self.longest();
        let read = &text[..text.floor_char_boundary(most.saturating_add(longest))];
        let mut masked = self.mask(read);
        let is_cut = read.len() < text.len();
        if is_cut {
            // The end may be the beginning of a secret.
            masked.truncate(masked.floor_char_boundary(masked.len().saturating_sub(longest)));
        }
        if is_cut || masked.len() > most {
            masked.truncate(masked.floor_char_boundary(most.saturating_sub(CUT.len())));
            masked.push_str(CUT);
        }
        masked
    }

    /// Returns a value whose texts are each without secrets, and of at most `most` bytes.
    pub(crate) fn value(&self, value: &Value, most: usize) -> Value {
        match value {
            Value::String(text) => self.text(text, most).into(),
            Value::Array(items) => items.iter().map(|item| self.value(item, most)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (self.text(name, most), self.value(value, most))).collect()
            }
            Value::Number(number) => {
                let text = number.to_string();
                if self.secrets.contains(&text) { MASK.into() } else { value.clone() }
            }
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }

    /// Returns a result of a tool.
    pub(crate) fn result(&self, text: &str) -> String {
        self.text(text, MAX_CONTENT)
    }

    /// Returns arguments of a tool, as JSON.
    pub(crate) fn arguments(&self, arguments: &Value) -> String {
        if arguments.is_null() {
            return "{}".to_owned();
        }
        let fitting = fit(MAX_CONTENT, |most| self.value(arguments, most));
        fitting.unwrap_or_else(|| json!({ "cut": CUT }).to_string())
    }

    fn longest(&self) -> usize {
        self.secrets.first().map_or(0, String::len)
    }

    fn mask(&self, text: &str) -> String {
        let found = self.secrets.iter().filter(|secret| text.contains(secret.as_str()));
        let mut found: Vec<_> = found.flat_map(|secret| occurrences(text, secret)).collect();
        found.sort_unstable_by_key(|range| range.start);
        let mut masked = String::with_capacity(text.len());
        let mut end = 0;
        for range in found {
            if range.start >= end {
                masked.push_str(&text[end..range.start]);
                masked.push_str(MASK);
            }
            end = end.max(range.end);
        }
        masked.push_str(&text[end..]);
        masked
    }
}

/// Returns where a secret is in a text, from both ends: what it overlaps with at one end must not stay at the other.
fn occurrences(text: &str, secret: &str) -> impl Iterator<Item = Range<usize>> {
    let found = text.match_indices(secret).chain(text.rmatch_indices(secret));
    found.map(|(start, part)| start..start + part.len())
}

/// Returns what `render` makes with texts of the given length, as JSON of at most `room` bytes: the texts are cut shorter until it
/// fits. `None` if it does not with the shortest ones.
pub(crate) fn fit(room: usize, render: impl Fn(usize) -> Value) -> Option<String> {
    let mut most = MAX_CONTENT;
    while most >= FEWEST {
        let json = render(most).to_string();
        if json.len() <= room {
            return Some(json);
        }
        most /= 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capture(secrets: &[&str]) -> ContentCapture {
        let mut secrets: Vec<String> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        ContentCapture::new(secrets.into())
    }

    #[test]
    fn secrets_are_replaced_with_all_that_they_overlap() {
        let content = capture(&["key-one", "key-one-and-more"]);
        assert_eq!(content.text("a key-one-and-more, a key-one, a key", 100), "a ***, a ***, a key");
        // The caller chooses the values of headers, such as the beginning of a key with text before it.
        let content = capture(&["the key is sk-live-", "sk-live-geheim", "abaaba"]);
        assert_eq!(content.text("the key is sk-live-geheim, abaabaaba!", 100), "***, ***!");
        assert_eq!(content.text("abaabaabaaba", 100), "******", "one after the other");
        let content = capture(&["key-one", "key-one-and-more"]);
        let value = json!({ "key-one": ["x key-one", 7, null, true], "n": { "k": "key-one-and-more" } });
        assert_eq!(content.value(&value, 100), json!({ "***": ["x ***", 7, null, true], "n": { "k": "***" } }));
        assert_eq!(capture(&["12345678"]).value(&json!([12_345_678, 1]), 100), json!(["***", 1]));
    }

    #[test]
    fn a_text_is_cut_at_a_character_with_a_mark() {
        let content = capture(&[]);
        let long = "é".repeat(MAX_CONTENT);
        let cut = content.result(&long);
        assert!(cut.len() <= MAX_CONTENT && cut.len() > MAX_CONTENT - 4, "{}", cut.len());
        assert!(cut.starts_with("éé") && cut.ends_with("é… [cut]"), "{cut}");
        let whole = "x".repeat(MAX_CONTENT);
        assert_eq!(content.result(&whole), whole);
        assert!(content.result(&format!("{whole}y")).ends_with(CUT));
    }

    #[test]
    fn no_part_of_a_secret_is_left_at_a_cut() {
        let secret: String = (0..40).map(|number| format!("s3c{number:03}")).collect();
        let content = capture(&[&secret]);
        for before in 0..2 * secret.len() {
            let text = format!("{}{secret}{}", "x".repeat(MAX_CONTENT - before), "y".repeat(300));
            let cut = content.result(&text);
            assert!(!cut.contains("s3c") && cut.len() <= MAX_CONTENT, "{before}");
        }
        // Masks make the part that is read shorter than what may be kept, so that its end is not cut off by the limit.
        let many = secret.repeat(60);
        for missing in 0..secret.len() {
            let cut = content.result(&many[missing..]);
            let rest = (secret.len() - missing) % secret.len();
            assert!(!cut.get(rest..).unwrap_or_default().contains("s3c"), "{missing}");
        }
    }

    #[test]
    fn arguments_stay_json_and_fit() {
        let content = capture(&["key-one"]);
        assert_eq!(content.arguments(&json!({ "a": "key-one" })), r#"{"a":"***"}"#);
        assert_eq!(content.arguments(&Value::Null), "{}");
        let long = json!({ "first": "x".repeat(20_000), "second": "\u{1}".repeat(20_000), "third": 3 });
        let many: Value = (0..5000).map(|number| json!({ "n": number })).collect();
        for arguments in [long, many] {
            let fitting = content.arguments(&arguments);
            assert!(fitting.len() <= MAX_CONTENT && fitting.contains("[cut]"), "{fitting}");
            serde_json::from_str::<Value>(&fitting).unwrap();
        }
    }

    proptest! {
        #[test]
        fn any_text_is_cut_without_a_panic(text in ".{0,300}", most in FEWEST..200_usize, secret in ".{4,40}") {
            let cut = capture(&[&secret]).text(&text, most);
            prop_assert!(cut.len() <= most, "{cut:?}");
        }
    }
}
