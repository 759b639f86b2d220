//! Tokens that a process has counted today, as its responses report them: totals that only grow, so that a report which comes twice or
//! late changes nothing.

use std::fmt;

use super::hour_start;

/// Header of a response with the [tokens of today](SpentTokens), a dictionary as in RFC 9651.
pub const SPENT_HEADER: &str = "x-recif-spent";
/// Header of a response with the cost of these tokens by the [prices](super::ModelPrices) of the request, in 10⁻⁹ of the currency, in the
/// same form.
pub const COST_HEADER: &str = "x-recif-cost";
/// Longest report that is read, in bytes.
pub(super) const MAX_REPORT: usize = 256;
/// Largest number of tokens that is believed: an integer of RFC 9651 has at most 15 digits.
const MAX_TOKENS: u64 = 999_999_999_999_999;
/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Tokens of input and output that one run of a process has counted on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpentTokens {
    /// Days since 1970, UTC.
    pub day: i64,
    /// Run of the process: its start, in nanoseconds since 1970.
    pub run: u64,
    /// Tokens for all callers.
    pub all: u64,
    /// Tokens for the caller of the request; `None`: not known.
    pub own: Option<u64>,
}

impl SpentTokens {
    /// Reads a report. `None`: it is none, or has numbers that cannot be.
    pub fn read(report: &[u8]) -> Option<Self> {
        let report = str::from_utf8(report).ok().filter(|report| report.len() <= MAX_REPORT)?;
        let tokens = |name: &str| member(report, name)?.parse::<u64>().ok().filter(|tokens| *tokens <= MAX_TOKENS);
        let run = member(report, "run")?.strip_prefix('"')?.strip_suffix('"')?.parse().ok()?;
        Some(Self { day: member(report, "day")?.parse().ok()?, run, all: tokens("all")?, own: tokens("own") })
    }
}

/// Writes the report. The run is a string, as it has more digits than an integer of RFC 9651.
impl fmt::Display for SpentTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { day, run, all, own } = self;
        write!(f, "day={day}, run=\"{run}\", all={}", all.min(&MAX_TOKENS))?;
        own.map_or(Ok(()), |own| write!(f, ", own={}", own.min(MAX_TOKENS)))
    }
}

/// Returns the value of a member of a dictionary whose values have no commas.
pub(crate) fn member<'a>(dictionary: &'a str, name: &str) -> Option<&'a str> {
    let mut members = dictionary.split(',').filter_map(|member| member.trim().split_once('='));
    members.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns the day (UTC) of a time in seconds since 1970.
pub fn day_of(seconds: i64) -> i64 {
    seconds.div_euclid(DAY_SECONDS)
}

/// Returns the day (UTC) of an hour since 1970.
pub fn day_of_hour(hour: i64) -> i64 {
    day_of(hour_start(hour))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let known = SpentTokens { day: 20_784, run: 1_795_763_226_123_456_789, all: 1200, own: Some(7) };
        for spent in [known, SpentTokens { own: None, ..known }, SpentTokens { all: 0, own: Some(0), ..known }] {
            assert_eq!(SpentTokens::read(spent.to_string().as_bytes()), Some(spent), "{spent}");
        }
        let most = SpentTokens { all: u64::MAX, own: Some(u64::MAX), ..known };
        let believed = SpentTokens { all: MAX_TOKENS, own: Some(MAX_TOKENS), ..known };
        assert_eq!(SpentTokens::read(most.to_string().as_bytes()), Some(believed));
    }

    #[test]
    fn what_is_no_report_is_none() {
        for wrong in [
            "",
            "day=1, run=\"2\"",
            "day=1, run=2, all=3",
            "day=x, run=\"2\", all=3",
            "day=1, run=\"-2\", all=3",
            "day=1, run=\"2\", all=-3",
            "day=1, run=\"2\", all=1000000000000000",
            "run=\"2\", all=3",
        ] {
            assert_eq!(SpentTokens::read(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(SpentTokens::read(b"day=1, run=\"2\", all=\xff"), None);
        let long = format!("day=1, run=\"2\", all=3{}", " ".repeat(MAX_REPORT));
        assert_eq!(SpentTokens::read(long.as_bytes()), None);
    }

    #[test]
    fn days_begin_at_midnight() {
        assert_eq!([day_of(-1), day_of(0), day_of(86_399), day_of(86_400)], [-1, 0, 0, 1]);
        assert_eq!([day_of_hour(-1), day_of_hour(0), day_of_hour(23), day_of_hour(24)], [-1, 0, 0, 1]);
    }
}
