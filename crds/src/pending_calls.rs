//! Calls of an agent's tools that wait for a person, as the runtime reports them in headers of its responses: those that wait, and those
//! that the request decided on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::usage::member;

/// Header of a response with the [calls that wait](PendingCalls), a dictionary as in RFC 9651.
pub const PENDING_HEADER: &str = "x-recif-approvals";
/// Header of the response to a decision with [its calls](DecidedCalls), a dictionary as in RFC 9651.
pub const DECISION_HEADER: &str = "x-recif-approval";
/// Longest report that is read, in bytes.
const MAX_REPORT: usize = 8192;
/// Largest number that is believed: an integer of RFC 9651 has at most 15 digits.
const MAX_NUMBER: i64 = 999_999_999_999_999;
/// Most ids of approved calls, and of rejected ones, in a report.
const MOST_IDS: usize = 32;
/// Longest id that is read, in bytes, and longest one of a task that is written; a longer one is cut.
const MAX_ID: usize = 128;
/// The same of the id of a call that is written, so that the ids of many calls are read too.
const MAX_CALL_ID: usize = 64;

/// Calls of one agent that wait for a decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCalls {
    /// Time at which they were counted, in milliseconds since 1970.
    pub at: i64,
    /// Number of calls.
    pub calls: u64,
    /// Time since which the first one waits, in seconds since 1970.
    pub since: i64,
    /// Time at which the last one expires, in seconds since 1970.
    pub until: i64,
}

impl PendingCalls {
    /// Reads a report. `None`: it is none, or has numbers that cannot be.
    pub fn read(report: &[u8]) -> Option<Self> {
        let report = str::from_utf8(report).ok().filter(|report| report.len() <= MAX_REPORT)?;
        let number = |name: &str| {
            let number = member(report, name)?.parse::<i64>().ok();
            number.filter(|number| (0..=MAX_NUMBER).contains(number))
        };
        let (at, calls) = (number("at")?, number("calls")?.unsigned_abs());
        if calls == 0 {
            return Some(Self { at, ..Self::default() });
        }
        Some(Self { at, calls, since: number("since")?, until: number("until")? })
    }

    /// Returns the newer of two reports.
    #[must_use]
    pub fn newer(self, other: Self) -> Self {
        if other.at >= self.at { other } else { self }
    }

    /// Reports whether any call waits at this time, in seconds since 1970.
    pub fn wait_at(&self, seconds: i64) -> bool {
        self.calls > 0 && self.until > seconds
    }
}

impl fmt::Display for PendingCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, calls, since, until } = self;
        write!(f, "at={at}, calls={calls}")?;
        if *calls > 0 {
            write!(f, ", since={since}, until={until}")?;
        }
        Ok(())
    }
}

/// Calls that a person decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedCalls {
    /// Task of their turn.
    pub task: Box<str>,
    /// Ids of the approved calls.
    pub approved: Vec<Box<str>>,
    /// Ids of the rejected calls.
    pub rejected: Vec<Box<str>>,
}

impl DecidedCalls {
    /// Creates a report. The ids of calls come from a model: a character that is neither a letter, a digit nor one of `-_.:` becomes `_`.
    pub fn new<'a>(
        task: &str,
        approved: impl Iterator<Item = &'a str>,
        rejected: impl Iterator<Item = &'a str>,
    ) -> Self {
        let call = |id: &str| visible(id, MAX_CALL_ID);
        let (approved, rejected) = (approved.take(MOST_IDS).map(call), rejected.take(MOST_IDS).map(call));
        Self { task: visible(task, MAX_ID), approved: approved.collect(), rejected: rejected.collect() }
    }

    /// Reads a report. `None`: it is none, or has more than ids.
    pub fn read(report: &[u8]) -> Option<Self> {
        let report = str::from_utf8(report).ok().filter(|report| report.len() <= MAX_REPORT)?;
        let text = |name: &str| member(report, name)?.strip_prefix('"')?.strip_suffix('"');
        let ids = |name: &str| {
            let ids = text(name).unwrap_or_default().split(' ').filter(|id| !id.is_empty());
            ids.take(MOST_IDS).map(|id| is_id(id).then(|| Box::from(id))).collect::<Option<Vec<Box<str>>>>()
        };
        let task = text("task").filter(|task| is_id(task))?;
        Some(Self { task: task.into(), approved: ids("approved")?, rejected: ids("rejected")? })
    }
}

impl fmt::Display for DecidedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, approved, rejected } = self;
        write!(f, "task=\"{task}\"")?;
        for (name, ids) in [("approved", approved), ("rejected", rejected)] {
            if !ids.is_empty() {
                write!(f, ", {name}=\"{}\"", ids.join(" "))?;
            }
        }
        Ok(())
    }
}

fn is_visible(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | ':')
}

fn is_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len()) && text.chars().all(is_visible)
}

/// Returns an id as a report can have it, with at most this many characters.
fn visible(id: &str, most: usize) -> Box<str> {
    let shown = id.chars().take(most).map(|letter| if is_visible(letter) { letter } else { '_' });
    let shown: String = shown.collect();
    if shown.is_empty() { "_".into() } else { shown.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: PendingCalls =
        PendingCalls { at: 1_767_355_445_678, calls: 2, since: 1_767_355_440, until: 1_767_359_040 };

    #[test]
    fn what_waits_is_read_as_it_was_written() {
        let none = PendingCalls { at: 7, ..PendingCalls::default() };
        for (pending, text) in
            [(TWO, "at=1767355445678, calls=2, since=1767355440, until=1767359040"), (none, "at=7, calls=0")]
        {
            assert_eq!(pending.to_string(), text);
            assert_eq!(PendingCalls::read(text.as_bytes()), Some(pending), "{text}");
        }
        for wrong in ["", "at=7", "calls=1, since=1, until=2", "at=7, calls=1", "at=-1, calls=0", "at=7, calls=x"] {
            assert_eq!(PendingCalls::read(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(PendingCalls::read(b"at=7, calls=0, more=\xff"), None);
    }

    #[test]
    fn calls_wait_until_the_last_one_expires() {
        assert!(TWO.wait_at(1_767_359_039) && !TWO.wait_at(1_767_359_040));
        assert!(!PendingCalls { calls: 0, ..TWO }.wait_at(0));
    }

    #[test]
    fn the_newer_report_counts_whichever_comes_first() {
        let later = PendingCalls { at: TWO.at + 1, ..PendingCalls::default() };
        assert_eq!([TWO.newer(later), later.newer(TWO)], [later; 2]);
    }

    #[test]
    fn a_decision_is_read_as_it_was_written_and_has_nothing_but_ids() {
        let decided = DecidedCalls::new("0a.1b", ["call_1", "a b\"\u{e9}"].into_iter(), ["x:2"].into_iter());
        assert_eq!(decided.to_string(), "task=\"0a.1b\", approved=\"call_1 a_b__\", rejected=\"x:2\"");
        let none = DecidedCalls::new("t", [].into_iter(), ["", "1"].into_iter());
        assert_eq!(none.to_string(), "task=\"t\", rejected=\"_ 1\"");
        for decided in [decided, none] {
            assert_eq!(DecidedCalls::read(decided.to_string().as_bytes()), Some(decided));
        }
        for wrong in ["", "approved=\"1\"", "task=\"\"", "task=t", "task=\"a b\"", "task=\"t\", approved=\"a\u{e9}\""] {
            assert_eq!(DecidedCalls::read(wrong.as_bytes()), None, "{wrong}");
        }
        let many = vec!["i".repeat(200); 40];
        let ids = || many.iter().map(String::as_str);
        let longest = DecidedCalls::new(&"t".repeat(200), ids(), ids());
        assert_eq!((longest.task.len(), longest.approved.len(), longest.rejected[31].len()), (128, 32, 64));
        assert_eq!(DecidedCalls::read(longest.to_string().as_bytes()), Some(longest));
    }
}
