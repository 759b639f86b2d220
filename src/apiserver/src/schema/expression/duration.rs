//! The function `duration` of CEL, which reads texts such as `1h30m` as Go's `time.ParseDuration` does.

use std::{any::Any, cmp::Ordering};

use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        traits::Comparer,
        types::{CelString, DURATION_TYPE, Type},
        value::{StaticVal, Val},
    },
};

/// A length of time. Two of them can be compared; CEL's arithmetic of time is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Duration {
    nanoseconds: i64,
}

static TYPE: Type = DURATION_TYPE;

impl Val for Duration {
    fn get_type(&self) -> &Type {
        &TYPE
    }

    fn cel_type() -> &'static Type {
        &TYPE
    }

    fn as_comparer(&self) -> Option<&dyn Comparer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>() == Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(*self)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Duration {}

impl Comparer for Duration {
    fn compare(&self, other: &dyn Val) -> Result<Ordering, ExecutionError> {
        let other = other.downcast_ref::<Self>();
        let mismatch = || ExecutionError::no_such_overload("compare", vec![TYPE.name().to_owned()]);
        other.map(|other| self.cmp(other)).ok_or_else(mismatch)
    }
}

/// Adds the function to an environment.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn duration: (CelString) -> Result<Duration>)
}

fn duration(text: &CelString<'_>) -> Result<Duration, ExecutionError> {
    let text = text.inner();
    let wrong = || ExecutionError::function_error("duration", format!("time: invalid duration {text:?}"));
    parse(text).map(|nanoseconds| Duration { nanoseconds }).ok_or_else(wrong)
}

/// Returns the nanoseconds of a sequence of decimal numbers with units, such as `-1.5h30m`. A zero needs no unit.
fn parse(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) if text.starts_with('-') => (-1, rest),
        Some(rest) => (1, rest),
        None => (1, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit = unit_nanoseconds(unit)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        // Digits beyond the fifteenth are below a nanosecond of the longest unit.
        let fraction = &fraction[..fraction.len().min(15)];
        if !fraction.is_empty() {
            total += fraction.parse::<i128>().ok()? * unit / 10_i128.pow(fraction.len() as u32);
        }
        rest = after;
    }
    i64::try_from(sign * total).ok()
}

fn unit_nanoseconds(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_does() {
        let good: &[(&str, i64)] = &[
            ("0", 0),
            ("-0", 0),
            ("1ns", 1),
            ("1.5us", 1_500),
            ("2µs", 2_000),
            ("300ms", 300_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("-1m2s", -62_000_000_000),
            ("+3s", 3_000_000_000),
        ];
        for (text, expected) in good {
            assert_eq!(parse(text), Some(*expected), "{text}");
        }
        for text in ["", "-", "1", "s", ".s", "1.2.3s", "1d", "1 s", "1h 2m", "9999999999h", "--1s", "1s1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
