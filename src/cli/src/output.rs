//! Output formats of the commands, and writing to stdout and stderr.

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write as _},
};

use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use crds::hidden_text::{escape_hidden, is_hidden};
use serde::Serialize;

use crate::error::CliError;

/// A form. Each command takes those that fit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrintFormat {
    /// For people
    #[value(alias = "text")]
    Plain,
    /// For people, in columns
    Table,
    /// For people, in all columns
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// One KIND/NAME per line
    Name,
}

impl PrintFormat {
    /// Formats of a command that prints text.
    pub(super) const TEXT_FORMATS: [Self; 3] = [Self::Plain, Self::Json, Self::Yaml];
    /// Formats of a command that prints a list.
    pub(super) const LIST_FORMATS: [Self; 5] = [Self::Table, Self::Wide, Self::Json, Self::Yaml, Self::Name];

    /// Returns a parser of the command line for these formats.
    pub(super) fn parser<const N: usize>(taken: [Self; N]) -> impl TypedValueParser<Value = Self> {
        let words = taken.iter().filter_map(Self::to_possible_value).collect::<Vec<_>>();
        PossibleValuesParser::new(words).try_map(|word| Self::from_str(&word, false))
    }

    /// Reports whether the format is for people.
    pub(super) fn is_for_people(self) -> bool {
        matches!(self, Self::Plain | Self::Table | Self::Wide)
    }

    /// Returns one value as a document of this format. In YAML it begins with `---`, so that several of them are a
    /// stream.
    ///
    /// # Errors
    /// [`CliError::Encode`], which would be a defect.
    pub(super) fn document(self, what: &'static str, value: &impl Serialize) -> Result<String, CliError> {
        match self {
            Self::Yaml => Ok(format!("---\n{}", yaml(what, value)?)),
            _ => Ok(json(what, value)? + "\n"),
        }
    }
}

/// Returns a value as pretty-printed JSON.
///
/// # Errors
/// [`CliError::Encode`], which would be a defect.
pub(super) fn json(what: &'static str, value: &impl Serialize) -> Result<String, CliError> {
    serde_json::to_string_pretty(value).map_err(|error| CliError::Encode { what, why: error.to_string() })
}

/// Returns a value as YAML; ends with a line break.
///
/// # Errors
/// [`CliError::Encode`], which would be a defect.
pub(super) fn yaml(what: &'static str, value: &impl Serialize) -> Result<String, CliError> {
    serde_yaml::to_string(value).map_err(|error| CliError::Encode { what, why: error.to_string() })
}

/// Writes to stdout and flushes, so that a program that follows the output sees it at once.
pub(super) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Print)
}

/// Writes text of foreign origin to stdout: on a terminal it is sanitized, so that it cannot control the terminal.
pub(super) fn print_foreign(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() { print(&sanitize(text)) } else { print(text) }
}

/// Writes text of foreign origin to stdout whose hidden characters count: on a terminal they are shown by their numbers.
pub(super) fn print_escaped(text: &str) -> Result<(), CliError> {
    print(&escaped(text, io::stdout().is_terminal()))
}

fn escaped(text: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal { Cow::Owned(escape_hidden(text)) } else { Cow::Borrowed(text) }
}

/// Removes characters that control a terminal or hide text, except line breaks and tabs. Joiners and selectors of variants stay:
/// some scripts and emoji need them.
pub(super) fn sanitize(text: &str) -> String {
    let is_part_of_text = |character: char| {
        matches!(character, '\u{200c}' | '\u{200d}' | '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{e0100}'..='\u{e01ef}')
    };
    let harms = |character: char| character == '\r' || (is_hidden(character) && !is_part_of_text(character));
    text.chars().filter(|character| !harms(*character)).collect()
}

/// Writes one line to stderr. A closed stderr is ignored.
pub(super) fn hint(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", sanitize(line));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_takes_only_the_forms_that_fit_it() {
        let command = || {
            clap::Command::new("x").arg(clap::arg!(-o <F>).value_parser(PrintFormat::parser(PrintFormat::TEXT_FORMATS)))
        };
        let read = |word| command().try_get_matches_from(["x", "-o", word]);
        assert_eq!(read("yaml").unwrap().get_one::<PrintFormat>("F"), Some(&PrintFormat::Yaml));
        let error = read("wide").unwrap_err().to_string();
        assert!(error.contains("plain, json, yaml"), "{error}");
    }

    #[test]
    fn documents_follow_one_another() {
        let value = json!({ "a": [1] });
        assert_eq!(PrintFormat::Yaml.document("x", &value).unwrap(), "---\na:\n- 1\n");
        assert_eq!(PrintFormat::Json.document("x", &value).unwrap(), "{\n  \"a\": [\n    1\n  ]\n}\n");
    }

    #[test]
    fn hidden_text_that_counts_is_shown_on_a_terminal_and_left_to_programs_as_it_is() {
        let document = PrintFormat::Json.document("x", &json!({ "a": "b\u{200b}\u{202e}c" })).unwrap();
        assert_eq!(escaped(&document, true), "{\n  \"a\": \"b\\u{200b}\\u{202e}c\"\n}\n");
        assert_eq!(escaped(&document, false), document);
    }

    #[test]
    fn what_others_wrote_gives_a_terminal_no_orders() {
        assert_eq!(sanitize("a\u{1b}[2Jb\u{7}\u{9b}1m\r\n\tc é"), "a[2Jb1m\n\tc é");
        assert_eq!(sanitize("exe\u{202e}gpj\u{2066}.\u{200b}x\u{feff}\u{e0041}"), "exegpj.x");
        assert_eq!(sanitize("a\u{115f}\u{3164}\u{34f}\u{1d173}\u{e0fff}b"), "ab");
        assert_eq!(sanitize("می\u{200c}خواهم 👩\u{200d}🚀"), "می\u{200c}خواهم 👩\u{200d}🚀");
    }
}
