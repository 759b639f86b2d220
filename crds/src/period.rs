//! Duration in a spec: kept as written, parsed once.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::schema;

/// Units with their length in milliseconds; `ms` comes before `m`, with which it begins.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

/// Duration such as `25s`, `1h30m` or `500ms`, as the Gateway API writes it
/// ([GEP-2257](https://gateway-api.sigs.k8s.io/geps/gep-2257/)): one to four whole numbers of at most five digits, each
/// with its unit.
///
/// The text is kept, so that an object is stored as its user wrote it. A text of another version that this one cannot
/// parse does not make the object unreadable: [`Period::length`] is `None` then.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use crds::Period;
///
/// let period = Period::from("1h30m");
/// assert_eq!(period.length(), Some(Duration::from_secs(90 * 60)));
/// assert_eq!(period.as_str(), "1h30m", "not 90m");
///
/// let newer: Period = serde_json::from_str("\"2 weeks\"")?;
/// assert_eq!(newer.length(), None);
/// assert_eq!(newer.as_str(), "2 weeks");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Period {
    text: String,
    length: Option<Duration>,
}

impl Period {
    /// Returns the duration; `None` for a text that is not in this format.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }

    /// Returns the duration, and for a text that is not in this format that of the field's default.
    pub(crate) fn length_or(&self, default: impl FnOnce() -> Self) -> Duration {
        self.length.or_else(|| default().length).unwrap_or_default()
    }

    /// Returns the text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Period {
    /// Returns a transform that bounds the schema of a field. It is one rule and no pattern, so that a violation has one
    /// message, and a readable one.
    pub(crate) fn between(least: &str, most: &str, example: &str) -> impl Fn(&mut Schema) + use<> {
        schema::rule(
            format!(
                "self.matches('^([0-9]{{1,5}}(h|m|s|ms)){{1,4}}$') && duration(self) >= duration('{least}') \
                 && duration(self) <= duration('{most}')"
            ),
            format!("must be a length of time from {least} to {most}: write it with its unit, such as {example}"),
        )
    }
}

impl From<String> for Period {
    fn from(text: String) -> Self {
        let length = read(&text);
        Self { text, length }
    }
}

impl From<&str> for Period {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.text
    }
}

impl JsonSchema for Period {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Period".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": 32 })
    }
}

fn read(text: &str) -> Option<Duration> {
    let (mut rest, mut parts, mut millis) = (text, 0, 0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let (unit, length) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        if !(1..=5).contains(&digits) || parts == 4 {
            return None;
        }
        millis += number.parse::<u64>().ok()? * length;
        parts += 1;
        rest = after.get(unit.len()..)?;
    }
    (parts > 0).then(|| Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_the_gateway_api_writes_it() {
        for (text, millis) in [
            ("60s", 60_000),
            ("0s", 0),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1m500ms", 60_500),
            ("1s1s", 2_000),
            ("99999h99999h99999h99999h", 4 * 99_999 * 3_600_000),
        ] {
            assert_eq!(Period::from(text).length(), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_kept_and_has_no_length() {
        for text in ["", "60", "s", "1.5h", "-1s", "1d", "100000s", "1s ", "1h1h1h1h1h", "soon", "٣s"] {
            let period: Period = serde_json::from_value(text.into()).unwrap();
            assert_eq!(period.length(), None, "{text}");
            assert_eq!(serde_json::to_value(&period).unwrap(), text);
        }
    }
}
