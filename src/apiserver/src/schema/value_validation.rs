//! Limits of a single value: `enum`, numbers, texts and counts, in the words of `k8s.io/kube-openapi/pkg/validation`.

use std::cmp::Ordering;

use regex::Regex;
use serde_json::{Number, Value};

use super::{
    error::{FieldError, child},
    go,
};

/// Formats that the API server checks, as opposed to those that only describe. Of them only date-time is supported.
const CHECKED_FORMATS: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Constraints of a schema on a value beside its type.
#[derive(Debug, Default)]
pub(super) struct ValueValidation {
    pub(super) required: Vec<String>,
    /// The text is a date and time as in RFC 3339.
    pub(super) date_time: bool,
    values: Vec<Value>,
    pattern: Option<Regex>,
    minimum: Option<Number>,
    maximum: Option<Number>,
    exclusive_minimum: bool,
    exclusive_maximum: bool,
    multiple_of: Option<Number>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    unique_items: bool,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
}

impl ValueValidation {
    /// Reads a keyword of a schema. Returns false for one that is unknown here, and an error for a value that it cannot
    /// have.
    pub(super) fn read(&mut self, keyword: &str, value: &Value) -> Result<bool, String> {
        let number = || value.as_number().cloned().map(Some).ok_or_else(|| format!("{keyword} must be a number"));
        let count = || value.as_u64().map(Some).ok_or_else(|| format!("{keyword} must be a count"));
        let flag = || value.as_bool().ok_or_else(|| format!("{keyword} must be true or false"));
        let list = || value.as_array().ok_or_else(|| format!("{keyword} must be a list"));
        let text = || value.as_str().ok_or_else(|| format!("{keyword} must be a text"));
        match keyword {
            "required" => self.required = list()?.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            "enum" => self.values = list()?.clone(),
            "pattern" => self.pattern = Some(Regex::new(text()?).map_err(|error| format!("pattern: {error}"))?),
            "minimum" => self.minimum = number()?,
            "maximum" => self.maximum = number()?,
            "exclusiveMinimum" => self.exclusive_minimum = flag()?,
            "exclusiveMaximum" => self.exclusive_maximum = flag()?,
            "multipleOf" => self.multiple_of = number()?,
            "minLength" => self.min_length = count()?,
            "maxLength" => self.max_length = count()?,
            "minItems" => self.min_items = count()?,
            "maxItems" => self.max_items = count()?,
            "uniqueItems" => self.unique_items = flag()?,
            "minProperties" => self.min_properties = count()?,
            "maxProperties" => self.max_properties = count()?,
            "format" => match text()?.replace('-', "").as_str() {
                "datetime" => self.date_time = true,
                format if CHECKED_FORMATS.contains(&format) => return Ok(false),
                _ => {} // such as int32: it describes
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks the length, the pattern and the format of a text. Reports the first of length and pattern that fails.
    pub(super) fn text(&self, text: &str, path: &str, errors: &mut Vec<FieldError>) {
        let value = || Value::from(text);
        let length = text.chars().count() as u64;
        if let Some(max) = self.max_length.filter(|max| length > *max) {
            errors.push(FieldError::too_long(path, max));
        } else if let Some(min) = self.min_length.filter(|min| length < *min) {
            errors.push(body(path, &value(), &format!("should be at least {min} chars long")));
        } else if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            errors.push(body(path, &value(), &format!("should match '{pattern}'")));
        }
        if self.date_time && !is_date_time(text) {
            errors.push(FieldError::wrong_type(path, "date-time", text));
        }
    }

    /// Checks the bounds of a number.
    pub(super) fn number(&self, number: &Number, path: &str, errors: &mut Vec<FieldError>) {
        let value = Value::Number(number.clone());
        let mut add = |words: &str, limit: &Number| {
            errors.push(body(path, &value, &format!("should be {words} {}", go::number(limit))));
        };
        if let Some(factor) = self.multiple_of.as_ref().filter(|factor| !is_multiple(number, factor)) {
            add("a multiple of", factor);
        }
        if let Some(min) = &self.minimum {
            match compare(number, min) {
                Some(Ordering::Less) if !self.exclusive_minimum => add("greater than or equal to", min),
                Some(Ordering::Less | Ordering::Equal) if self.exclusive_minimum => {
                    add("greater than", min);
                }
                _ => {}
            }
        }
        if let Some(max) = &self.maximum {
            match compare(number, max) {
                Some(Ordering::Greater) if !self.exclusive_maximum => add("less than or equal to", max),
                Some(Ordering::Greater | Ordering::Equal) if self.exclusive_maximum => {
                    add("less than", max);
                }
                _ => {}
            }
        }
    }

    /// Checks the number of items of a list, and whether each occurs once.
    pub(super) fn items(&self, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
        let count = items.len();
        if let Some(min) = self.min_items.filter(|min| (count as u64) < *min) {
            errors.push(body(path, &count.into(), &format!("should have at least {min} items")));
        }
        if let Some(max) = self.max_items.filter(|max| count as u64 > *max) {
            errors.push(FieldError::too_many(path, count, max));
        }
        if self.unique_items && (1..count).any(|index| items[..index].contains(&items[index])) {
            errors.push(body(path, &Value::from(""), "shouldn't contain duplicates"));
        }
    }

    /// Checks the number of fields of an object. Returns false if it is wrong: the object then has no further violation.
    pub(super) fn properties(&self, count: usize, path: &str, errors: &mut Vec<FieldError>) -> bool {
        if let Some(min) = self.min_properties.filter(|min| (count as u64) < *min) {
            errors.push(body(path, &count.into(), &format!("should have at least {min} properties")));
            return false;
        }
        if let Some(max) = self.max_properties.filter(|max| count as u64 > *max) {
            errors.push(FieldError::too_many(path, count, max));
            return false;
        }
        true
    }

    /// Checks that a value is one of those that are listed. A null is none of them.
    pub(super) fn listed(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        if !self.values.is_empty() && (value.is_null() || !self.values.contains(value)) {
            errors.push(FieldError::not_supported(path, value, &self.values));
        }
    }

    /// Adds an error for each required field that is missing.
    pub(super) fn required(&self, has: impl Fn(&str) -> bool, path: &str, errors: &mut Vec<FieldError>) {
        let missing = self.required.iter().filter(|name| !has(name));
        errors.extend(missing.map(|name| FieldError::required(&child(path, name))));
    }
}

/// Returns an error with the words `PATH in body …`.
fn body(path: &str, value: &Value, words: &str) -> FieldError {
    FieldError::invalid(path, value, &format!("{path} in body {words}"))
}

/// Compares two numbers: as integers if both are, else as floating-point numbers.
fn compare(number: &Number, limit: &Number) -> Option<Ordering> {
    match (number.as_i128(), limit.as_i128()) {
        (Some(number), Some(limit)) => Some(number.cmp(&limit)),
        _ => number.as_f64()?.partial_cmp(&limit.as_f64()?),
    }
}

fn is_multiple(number: &Number, factor: &Number) -> bool {
    match (number.as_i128(), factor.as_i128()) {
        (Some(number), Some(factor)) => factor != 0 && number % factor == 0,
        _ => match (number.as_f64(), factor.as_f64()) {
            (Some(number), Some(factor)) => (number / factor).fract().abs() < f64::EPSILON,
            _ => false,
        },
    }
}

/// Returns whether a text is a date and time with seconds and offset, as in RFC 3339.
fn is_date_time(text: &str) -> bool {
    let at = |index| text.as_bytes().get(index).map(u8::to_ascii_uppercase);
    let is_long = at(10) == Some(b'T') && at(16) == Some(b':') && !text.contains('[');
    is_long && text.get(17..19) != Some("60") && text.parse::<jiff::Timestamp>().is_ok()
}

/// Returns whether a number without a fraction may be read as an integer.
pub(super) fn is_integral(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_are_those_of_rfc_3339() {
        let good = ["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.6z", "2026-01-02T03:04:05+02:00"];
        assert!(good.into_iter().all(is_date_time));
        let bad = [
            "",
            "soon",
            "2026-01-02",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04Z",
            "2026-01-02T03:04:05",
            "2026-02-30T03:04:05Z",
            "2026-01-02T03:04:60Z",
            "2026-01-02T03:04:05+01:00[Europe/Paris]",
        ];
        assert_eq!(bad.into_iter().filter(|text| is_date_time(text)).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn integers_are_compared_without_loss() {
        let max = Number::from(i64::MAX);
        assert_eq!(compare(&Number::from(i64::MAX - 1), &max), Some(Ordering::Less));
        assert_eq!(compare(&Number::from_f64(1.5).unwrap(), &Number::from(1)), Some(Ordering::Greater));
    }

    #[test]
    fn texts_are_quoted_as_go_does() {
        assert_eq!(go::quoted("a\"\\\n\u{1}é"), "\"a\\\"\\\\\\n\\x01é\"");
    }
}
