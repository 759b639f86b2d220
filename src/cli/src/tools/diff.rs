//! Shows how the definitions that wait differ from those that agents have.
//!
//! What is shown is what is accepted: a text whose digest is not that of the status is not shown, and characters that hide text
//! are shown by their numbers.

use std::collections::BTreeMap;

use crds::{
    digest::{canonical_json, digest},
    hidden_text::{escape_hidden, hidden_text},
    tool_pins::{HELD_KEY, HeldTool, accept_argument, shown_digest, shown_name},
    tool_server::{DiscoveredTool, TOOLS_KEY, tools_config_map},
};
use serde_json::{Value, json};
use similar::{Algorithm, udiff::unified_diff};

use super::FoundServer;
use crate::{
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint, print, print_escaped},
    target::ConnectArgs,
};

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// Characters after which a line of a description is broken, so that a change in a long one stands out.
const WIDTH: usize = 100;

/// Flags of `recif tools diff`.
#[derive(Debug, clap::Args)]
pub(super) struct ToolsDiffArgs {
    /// The server, as KIND/NAME
    #[arg(value_name = "OBJECT")]
    object: String,
    /// Names of tools [default: all that wait]
    #[arg(value_name = "TOOL")]
    tools: Vec<String>,
    /// Most lines of each tool, or 0 for all of them
    #[arg(long, value_name = "NUMBER", default_value_t = 40)]
    lines: usize,
    #[command(flatten)]
    connection: ConnectArgs,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
}

/// Prints the differences of the definitions that wait.
pub(super) async fn run(args: ToolsDiffArgs) -> Result<Exit, CliError> {
    let ToolsDiffArgs { object, tools, lines, connection, output } = args;
    let server = FoundServer::read(&object, connection).await?;
    let changes = changes(&server, &tools).await?;
    if changes.is_empty() {
        hint(&format!("nothing waits to be accepted of {}", server.name()));
    }
    if matches!(output, PrintFormat::Json | PrintFormat::Yaml) {
        let all: Vec<_> = changes.iter().map(PendingChange::document).collect();
        print_escaped(&output.document("the differences", &all)?)?;
        return Ok(Exit::Done);
    }
    for change in &changes {
        print(&change.text(lines))?;
    }
    let shown: Vec<_> = changes.iter().filter(|change| change.is_kept()).map(PendingChange::argument).collect();
    if !shown.is_empty() {
        hint(&format!(
            "what is to be used is accepted by: recif tools accept {} {}",
            server.argument(),
            shown.join(" ")
        ));
    }
    Ok(Exit::Done)
}

/// Definition that waits, beside the one that is in use.
#[derive(Debug)]
pub(super) struct PendingChange {
    pub(super) name: String,
    reason: String,
    /// SHA-256 (hex) of the definition that waits.
    pub(super) digest: String,
    /// Cause of hidden text in it.
    hides: Option<String>,
    /// Digest of the definition in use, if there is one.
    accepted_digest: Option<String>,
    accepted: Option<Value>,
    held: Option<Value>,
}

/// Returns the definitions that wait, of these tools or of all.
pub(super) async fn changes(server: &FoundServer, named: &[String]) -> Result<Vec<PendingChange>, CliError> {
    let held: Vec<&DiscoveredTool> = chosen(server, named)?;
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let map = server.live.config_map(&tools_config_map(server.kind.name, server.name())).await?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    let accepted: Vec<Value> = list(&data, TOOLS_KEY);
    let waiting: Vec<HeldTool> = list(&data, HELD_KEY);
    let change = |tool: &DiscoveredTool| {
        let wanted = tool.held_digest.clone().unwrap_or_default();
        let waits = waiting.iter().find(|waits| waits.name == tool.name);
        let is_of = |definition: &&Value, expected: &str| digest(definition) == expected;
        let held = waits.map(|waits| &waits.definition).filter(|definition| is_of(definition, &wanted));
        let used = accepted.iter().find(|definition| definition["name"] == tool.name.as_str());
        let used = used.filter(|definition| is_of(definition, &tool.digest));
        PendingChange {
            name: tool.name.clone(),
            reason: tool.held_reason.clone().unwrap_or_default(),
            digest: wanted.clone(),
            hides: held.and_then(|definition| hidden_text(definition, canonical_json(definition).len())),
            accepted_digest: Some(tool.digest.clone()).filter(|digest| !digest.is_empty()),
            accepted: used.cloned(),
            held: held.cloned(),
        }
    };
    Ok(held.into_iter().map(change).collect())
}

/// Returns the tools that wait, of those that are named, or all.
fn chosen<'s>(server: &'s FoundServer, named: &[String]) -> Result<Vec<&'s DiscoveredTool>, CliError> {
    for name in named {
        server.held_tool(name)?;
    }
    Ok(server.tools.held().filter(|tool| named.is_empty() || named.contains(&tool.name)).collect())
}

/// Returns a list of a ConfigMap; an empty one for a text that is none.
fn list<T: serde::de::DeserializeOwned>(data: &BTreeMap<String, String>, key: &str) -> Vec<T> {
    data.get(key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

impl PendingChange {
    fn document(&self) -> Value {
        json!({ "name": self.name, "reason": self.reason, "hides": self.hides, "heldDigest": shown_digest(&self.digest),
            "digest": self.accepted_digest.as_deref().map(shown_digest), "accepted": self.accepted, "held": self.held })
    }

    /// Reports whether the text of the definition that waits is known, so that it can be shown.
    pub(super) fn is_kept(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the definition as an argument of `recif tools accept`.
    pub(super) fn argument(&self) -> String {
        accept_argument(&self.name, &self.digest)
    }

    /// Returns the unified difference, of so many lines at most unless it is 0.
    pub(super) fn text(&self, most: usize) -> String {
        let name = shown_name(&self.name);
        let hides = self.hides.as_deref().map(|what| format!(": it {what}")).unwrap_or_default();
        let head = format!("{name} ({}{hides})\n", self.reason);
        let Some(held) = &self.held else {
            return format!(
                "{head}  its text is not kept, because it is too long beside the others, or is being written: read it at the \
                 server, its digest is {}\n\n",
                shown_digest(&self.digest)
            );
        };
        let old = self.accepted.as_ref().map(lines_of).unwrap_or_default();
        let before = match &self.accepted_digest {
            Some(digest) => format!("accepted {}", shown_digest(digest)),
            None => "nothing was accepted".to_owned(),
        };
        let after = format!("waits {}", shown_digest(&self.digest));
        let text =
            unified_diff(Algorithm::Myers, &old, &lines_of(held), CONTEXT, Some((before.as_str(), after.as_str())));
        let (shown, left) = first_lines(&text, most);
        let more = match left {
            0 => String::new(),
            left => format!("… {left} more lines, which --lines 0 shows\n"),
        };
        format!("{head}{shown}{more}\n")
    }
}

/// Returns the first lines of a text, and the number of the others; all of them for 0.
fn first_lines(text: &str, most: usize) -> (String, usize) {
    let all = text.lines().count();
    let most = if most == 0 { all } else { most };
    let shown = text.lines().take(most).map(|line| format!("{line}\n")).collect();
    (shown, all.saturating_sub(most))
}

/// Returns a definition in lines: its description as text, the rest as JSON. Characters that hide text are escaped.
fn lines_of(definition: &Value) -> String {
    let mut text = String::new();
    for (field, value) in definition.as_object().into_iter().flatten() {
        let lines: Vec<String> = match (field.as_str(), value) {
            ("description", Value::String(words)) => words.split('\n').flat_map(wrapped).collect(),
            (_, Value::String(words)) => vec![words.clone()],
            (_, other) => {
                // Cannot fail: a JSON value is written to memory.
                serde_json::to_string_pretty(other).unwrap_or_default().lines().map(str::to_owned).collect()
            }
        };
        text.push_str(&format!("{field}:\n"));
        for line in lines {
            text.push_str(&format!("  {line}\n"));
        }
    }
    escape_hidden(&text)
}

/// Breaks a line at its blanks, after so many characters. What it consists of stays: a long word is not broken.
fn wrapped(line: &str) -> Vec<String> {
    let (mut lines, mut begun) = (Vec::new(), String::new());
    for word in line.split_inclusive(' ') {
        if !begun.is_empty() && begun.chars().count() + word.chars().count() > WIDTH {
            lines.push(std::mem::take(&mut begun));
        }
        begun.push_str(word);
    }
    lines.push(begun);
    lines
}
