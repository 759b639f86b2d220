//! Tokens that a request may still use today, as the gateway tells the Pod.

use std::fmt;

use super::spent::{MAX_REPORT, member};

/// Header of a request with the [tokens that are left](LeftTokens), a dictionary as in RFC 9651.
pub const LEFT_HEADER: &str = "x-recif-left";
/// Header of a request with the cost that is left, in 10⁻⁹ of the currency, in the same form.
pub const LEFT_COST_HEADER: &str = "x-recif-left-cost";

/// Tokens of input and output that are left of the budgets of a day as the request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftTokens {
    /// Days since 1970, UTC.
    pub day: i64,
    /// Of the budget of all callers; `None`: there is none.
    pub all: Option<u64>,
    /// Of the budget of the caller of the request; `None`: there is none.
    pub own: Option<u64>,
}

impl LeftTokens {
    /// Reads the header. `None`: it names no day. A number that cannot be read is no budget.
    pub fn read(header: &[u8]) -> Option<Self> {
        let header = str::from_utf8(header).ok().filter(|header| header.len() <= MAX_REPORT)?;
        let tokens = |name: &str| member(header, name)?.parse::<u64>().ok();
        Some(Self { day: member(header, "day")?.parse().ok()?, all: tokens("all"), own: tokens("own") })
    }
}

impl fmt::Display for LeftTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { day, all, own } = self;
        write!(f, "day={day}")?;
        for (name, tokens) in [("all", all), ("own", own)] {
            if let Some(tokens) = tokens {
                write!(f, ", {name}={tokens}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_read_as_it_was_written() {
        for (all, own) in [(None, None), (Some(0), None), (None, Some(7)), (Some(10_000_000_000_000), Some(1))] {
            let left = LeftTokens { day: 20_784, all, own };
            assert_eq!(LeftTokens::read(left.to_string().as_bytes()), Some(left), "{left}");
        }
        assert_eq!(LeftTokens { day: 1, all: Some(2), own: Some(3) }.to_string(), "day=1, all=2, own=3");
    }

    #[test]
    fn a_header_without_a_day_says_nothing() {
        for wrong in ["", "all=3", "day=x, all=3", "day=, all=3"] {
            assert_eq!(LeftTokens::read(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(LeftTokens::read(b"day=1, all=3\xff"), None);
        assert_eq!(LeftTokens::read(format!("day=1{}", " ".repeat(MAX_REPORT)).as_bytes()), None);
        let unreadable = LeftTokens { day: 1, all: None, own: Some(2) };
        assert_eq!(LeftTokens::read(b"day=1, all=-3, own=2, more=4"), Some(unreadable));
    }
}
