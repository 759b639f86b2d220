//! Usage of models that a response reports, in the header or, of a stream, the trailer `x-recif-usage`: a dictionary as in RFC 9651.

use super::{UsageTotals, cut_name};

/// Longest report that is read, in bytes.
const MAX_REPORT: usize = 512;
/// Largest number of tokens or requests that is accepted in a report.
const MAX_NUMBER: u64 = 1_000_000_000_000;

/// Direction of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenDirection {
    /// To a model, cached ones included.
    Input,
    /// Of those to a model, read from the provider's cache.
    CacheRead,
    /// Of those to a model, written to the provider's cache.
    CacheWrite,
    /// From a model, those of reasoning included.
    Output,
    /// Of those from a model, used for reasoning.
    Reasoning,
}

impl TokenDirection {
    /// All directions.
    pub const ALL: [Self; 5] = [Self::Input, Self::CacheRead, Self::CacheWrite, Self::Output, Self::Reasoning];

    /// Returns the value of the label `direction`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::CacheRead => "cache_read",
            Self::CacheWrite => "cache_write",
            Self::Output => "output",
            Self::Reasoning => "reasoning",
        }
    }

    /// Returns the key in a report.
    fn key(self) -> &'static str {
        match self {
            Self::Input => "in",
            Self::CacheRead => "cr",
            Self::CacheWrite => "cw",
            Self::Output => "out",
            Self::Reasoning => "rs",
        }
    }
}

/// Reported usage of models by one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Tokens, in the order of [`TokenDirection::ALL`].
    pub tokens: [u64; TokenDirection::ALL.len()],
    /// Requests to models; one if the report does not say it.
    pub calls: u64,
    /// Set if a part of the tokens is estimated.
    pub is_estimated: bool,
    /// First model, such as `openai/gpt-5`, in visible ASCII.
    pub model: Option<Box<str>>,
}

impl ReportedUsage {
    /// Reads a report. Unknown keys are ignored. `None` without the tokens of both input and output.
    pub fn read(report: &[u8]) -> Option<Self> {
        let mut rest = str::from_utf8(report).ok().filter(|report| report.len() <= MAX_REPORT)?;
        let mut found = [None::<u64>; TokenDirection::ALL.len()];
        let (mut calls, mut is_estimated, mut model) = (None, false, None);
        let number = |value: &str| value.parse::<u64>().ok().filter(|number| *number <= MAX_NUMBER);
        while !rest.is_empty() {
            let (key, after) = rest.split_at(rest.find(['=', ',']).unwrap_or(rest.len()));
            let (value, after) = after.strip_prefix('=').map_or((String::new(), after), read_value);
            match key.trim() {
                "model" => model = Some(value).filter(|name| is_model(name)).map(|name| cut_name(&name).into()),
                "calls" => calls = number(&value),
                // A key without a value is true.
                "est" => is_estimated = matches!(value.as_str(), "" | "?1"),
                key => {
                    if let Some(of) = TokenDirection::ALL.into_iter().find(|direction| direction.key() == key) {
                        found[of as usize] = number(&value);
                    }
                }
            }
            rest = after.split_once(',').map_or("", |(_, rest)| rest);
        }
        let is_complete =
            [TokenDirection::Input, TokenDirection::Output].iter().all(|it| found[*it as usize].is_some());
        let (tokens, calls) = (found.map(Option::unwrap_or_default), calls.unwrap_or(1));
        is_complete.then_some(Self { tokens, calls, is_estimated, model })
    }

    /// Returns the tokens in a direction.
    pub fn of(&self, direction: TokenDirection) -> u64 {
        self.tokens[direction as usize]
    }

    /// Returns the numbers as those of a cell. A part of the tokens that exceeds the whole is cut to it.
    pub fn totals(&self) -> UsageTotals {
        let [input, cache_read, cache_write, output, reasoning] = self.tokens;
        let cache_read = cache_read.min(input);
        UsageTotals {
            calls: self.calls,
            input,
            cache_read,
            cache_write: cache_write.min(input - cache_read),
            output,
            reasoning: reasoning.min(output),
            estimated: if self.is_estimated { input.saturating_add(output) } else { 0 },
            ..UsageTotals::default()
        }
    }
}

/// Reports whether a name can be that of a model: visible ASCII characters, which neither a line of audit nor a label has to escape.
fn is_model(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    (1..=MAX_REPORT).contains(&name.len()) && name.bytes().all(fits)
}

/// Reads the value at the beginning of `text`, and returns what comes after it too.
fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        return (value.trim().to_owned(), rest);
    };
    let (mut value, mut escaped) = (String::new(), false);
    for (at, letter) in quoted.char_indices() {
        match letter {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return (value, &quoted[at + 1..]),
            _ => {
                value.push(letter);
                escaped = false;
            }
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::MAX_NAME_BYTES;

    #[test]
    fn the_usage_of_a_runner_is_read_and_that_of_others_as_far_as_it_is_one() {
        let usage = |tokens, (calls, is_estimated), model: &str| {
            let model = Some(model).filter(|model| !model.is_empty()).map(Box::from);
            Some(ReportedUsage { tokens, calls, is_estimated, model })
        };
        for (report, expected) in [
            (
                "in=1200, out=340, cr=800, cw=7, rs=120, calls=3, model=\"anthropic/claude\"",
                usage([1200, 800, 7, 340, 120], (3, false), "anthropic/claude"),
            ),
            ("in=1, out=2, calls=2, model=\"a, out=7\", est", usage([1, 0, 0, 2, 0], (2, true), "")),
            ("est=?0, model=\"a,out=7\", in=1, out=2", usage([1, 0, 0, 2, 0], (1, false), "a,out=7")),
            ("in=1, out=2, est=?1, model=\"a\\\"b\"", usage([1, 0, 0, 2, 0], (1, true), "")),
            ("in=1,out=2,calls=x", usage([1, 0, 0, 2, 0], (1, false), "")),
            ("in=1, out=1000000000001", None),
            ("est, in=-1, out=2", None),
            ("model=\"open", None),
            ("", None),
        ] {
            assert_eq!(ReportedUsage::read(report.as_bytes()), expected, "{report}");
        }
        assert_eq!(ReportedUsage::read(b"in=1, out=\xff"), None);
        let long = format!("in=1, out=2, model=\"{}\"", "m".repeat(300));
        let cut = ReportedUsage::read(long.as_bytes()).unwrap().model.unwrap();
        assert_eq!(cut.len(), MAX_NAME_BYTES);
        assert_eq!(ReportedUsage::read(format!("{long}{}", " ".repeat(MAX_REPORT)).as_bytes()), None);
    }

    #[test]
    fn the_numbers_of_a_report_are_those_of_a_cell() {
        let totals = |report: &str| ReportedUsage::read(report.as_bytes()).unwrap().totals();
        let part = totals("in=10, out=5, cr=6, cw=3, rs=2, calls=4, est");
        let expected = UsageTotals {
            calls: 4,
            input: 10,
            cache_read: 6,
            cache_write: 3,
            output: 5,
            reasoning: 2,
            estimated: 15,
            ..UsageTotals::default()
        };
        assert_eq!(part, expected);
        let beyond = totals("in=10, out=5, cr=9, cw=9, rs=9");
        assert_eq!((beyond.cache_read, beyond.cache_write, beyond.reasoning), (9, 1, 5));
        assert!(beyond.is_plausible());
    }
}
