//! Rewrites lengths of time of Go (`1.5h`, `250us`) as ours take them.

use crds::Period;

/// Units of Go with their length in milliseconds; a unit comes before one that it begins with.
const UNITS: [(&str, f64); 7] =
    [("ns", 1e-6), ("us", 1e-3), ("µs", 1e-3), ("ms", 1.0), ("h", 3_600_000.0), ("m", 60_000.0), ("s", 1000.0)];

/// Returns a length of time as a field of ours takes it, between two numbers of seconds: as it is written where it can
/// stay. `None` if it is none.
pub(crate) fn fixed(text: &str, least: u64, most: u64) -> Option<String> {
    let (least, most) = (least.saturating_mul(1000), most.saturating_mul(1000));
    if let Some(length) = Period::from(text).length() {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        if (least..=most).contains(&millis) {
            return Some(text.to_owned());
        }
    }
    Some(written(millis(text)?.clamp(least, most)))
}

/// Returns a length of time in seconds, rounded up; `None` if it is none.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    Some(millis(text)?.div_ceil(1000))
}

/// Reports whether a text is a length of time of this many seconds.
pub(crate) fn is(text: &str, seconds: u64) -> bool {
    millis(text) == Some(seconds * 1000)
}

/// Returns a length of time as text.
fn written(mut millis: u64) -> String {
    let mut text = String::new();
    for (unit, length) in [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        if millis >= length {
            text += &format!("{}{unit}", millis / length);
            millis %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Parses a length of time of Go, in milliseconds; a negative one is 0.
fn millis(text: &str) -> Option<u64> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut sum = 0.0;
    let mut parts = 0;
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (unit, length) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        sum += number.parse::<f64>().ok()? * length;
        rest = after.get(unit.len()..)?;
        parts += 1;
    }
    let whole = if is_negative { 0 } else { sum.round() as u64 };
    (parts > 0).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_length_of_time_has_several_texts() {
        assert!(["60s", "1m", "1m0s", "60000ms"].into_iter().all(|text| is(text, 60)));
        assert!(["61s", "60", "soon"].into_iter().all(|text| !is(text, 60)));
    }

    #[test]
    fn a_length_of_time_is_kept_rewritten_or_clamped() {
        for (text, expected) in [
            ("30s", Some("30s")),
            ("1h30m", Some("1h30m")),
            ("1.5h", Some("1h30m")),
            ("90m", Some("90m")),
            ("0.25s", Some("1s")),
            ("5m0s", Some("5m0s")),
            ("2500000us", Some("2s500ms")),
            ("300h", Some("24h")),
            ("-5s", Some("1s")),
            ("0", Some("1s")),
            ("5", None),
            ("soon", None),
            ("", None),
            ("1d", None),
            ("..s", None),
        ] {
            assert_eq!(fixed(text, 1, 24 * 3600).as_deref(), expected, "{text:?}");
        }
    }
}
