//! Usage of models that a response reports, in the header or, of a stream, the trailer `x-recif-usage`: a dictionary as in RFC 9651.

use crds::usage::cut_name;

/// Longest report that is read, in bytes.
const MAX_REPORT: usize = 512;
/// Largest number of tokens that is accepted in a report.
const MAX_TOKENS: u64 = 1_000_000_000_000;

/// Direction of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenDirection {
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
    pub(super) const ALL: [Self; 5] = [Self::Input, Self::CacheRead, Self::CacheWrite, Self::Output, Self::Reasoning];

    /// Returns the value of the label `direction`.
    pub(super) fn as_str(self) -> &'static str {
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
pub(super) struct ReportedUsage {
    /// Tokens, in the order of [`TokenDirection::ALL`].
    pub(super) tokens: [u64; TokenDirection::ALL.len()],
    /// First model, such as `openai/gpt-5`, in visible ASCII.
    pub(super) model: Option<Box<str>>,
}

impl ReportedUsage {
    /// Reads a report. Keys besides those of tokens and model are ignored. `None` without the tokens of both input and output.
    pub(super) fn read(report: &[u8]) -> Option<Self> {
        let mut rest = str::from_utf8(report).ok().filter(|report| report.len() <= MAX_REPORT)?;
        let (mut found, mut model) = ([None::<u64>; TokenDirection::ALL.len()], None);
        while !rest.is_empty() {
            let (key, after) = rest.split_at(rest.find(['=', ',']).unwrap_or(rest.len()));
            let (value, after) = after.strip_prefix('=').map_or((String::new(), after), read_value);
            let key = key.trim();
            if key == "model" {
                model = Some(value).filter(|name| is_model(name)).map(|name| cut_name(&name).into());
            } else if let Some(direction) = TokenDirection::ALL.into_iter().find(|direction| direction.key() == key) {
                found[direction as usize] = value.parse().ok().filter(|tokens| *tokens <= MAX_TOKENS);
            }
            rest = after.split_once(',').map_or("", |(_, rest)| rest);
        }
        let is_complete =
            [TokenDirection::Input, TokenDirection::Output].iter().all(|it| found[*it as usize].is_some());
        is_complete.then(|| Self { tokens: found.map(Option::unwrap_or_default), model })
    }

    /// Returns the tokens in a direction.
    pub(super) fn of(&self, direction: TokenDirection) -> u64 {
        self.tokens[direction as usize]
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
    use crds::usage::MAX_NAME_BYTES;

    use super::*;

    #[test]
    fn the_usage_of_a_runner_is_read_and_that_of_others_as_far_as_it_is_one() {
        let usage = |tokens, model: &str| {
            let model = Some(model).filter(|model| !model.is_empty()).map(Box::from);
            Some(ReportedUsage { tokens, model })
        };
        for (report, expected) in [
            (
                "in=1200, out=340, cr=800, cw=7, rs=120, calls=3, model=\"anthropic/claude\"",
                usage([1200, 800, 7, 340, 120], "anthropic/claude"),
            ),
            ("in=1, out=2, calls=1, model=\"a, out=7\", est", usage([1, 0, 0, 2, 0], "")),
            ("model=\"a,out=7\", in=1, out=2", usage([1, 0, 0, 2, 0], "a,out=7")),
            ("in=1, out=2, model=\"a\\\"b\"", usage([1, 0, 0, 2, 0], "")),
            ("in=1,out=2", usage([1, 0, 0, 2, 0], "")),
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
}
