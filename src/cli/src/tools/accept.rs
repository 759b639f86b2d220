//! Accepts definitions that wait, by their digests: an annotation of the server, which the operator reads and removes.
//!
//! A server may change a definition between the reading and the acceptance. So each is named by its whole digest, or is shown here
//! and accepted by an answer.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal as _},
};

use crds::{
    tool_pins::{ACCEPT_TOOLS, digest_hex, is_taken_with_all, shown_digest, shown_name},
    tool_server::DiscoveredTool,
};
use serde_json::json;

use super::{
    FoundServer,
    diff::{PendingChange, changes},
};
use crate::{
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint, print},
    target::ConnectArgs,
};

/// Most writes that are sent again because another client changed the server meanwhile.
const MAX_CONFLICTS: u32 = 3;

/// Flags of `recif tools accept`.
#[derive(Debug, clap::Args)]
pub(super) struct ToolsAcceptArgs {
    /// The server, as KIND/NAME
    #[arg(value_name = "OBJECT")]
    object: String,
    /// Tools, as NAME=sha256:DIGITS or sha256:DIGITS with all digits, as diff prints them; those of which only the name is given are
    /// shown, and accepted by an answer on the terminal
    #[arg(value_name = "TOOL", required_unless_present = "all")]
    tools: Vec<String>,
    /// Show all that wait, but for those that hide text, and accept them by an answer on the terminal
    #[arg(long, conflicts_with = "tools")]
    all: bool,
    #[command(flatten)]
    connection: ConnectArgs,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
}

/// Annotates the server with the digests that are accepted.
pub(super) async fn run(args: ToolsAcceptArgs) -> Result<Exit, CliError> {
    let ToolsAcceptArgs { object, tools, all, connection, output } = args;
    let server = FoundServer::read(&object, connection).await?;
    let (mut accepted, unread) =
        if all { (BTreeMap::new(), all_but_hidden(&server)) } else { parse_tools(&server, &tools)? };
    if !unread.is_empty() {
        require_terminal(&server, io::stdin().is_terminal() && io::stderr().is_terminal())?;
        let shown = changes(&server, &unread).await?;
        accepted.extend(confirm(&server, &shown, io::stdin().lock())?);
    }
    if accepted.is_empty() {
        if server.tools.held().next().is_none() {
            hint(&format!("nothing waits to be accepted of {}", server.name()));
        }
        return Ok(Exit::Done);
    }
    let server = annotate(server, &accepted).await?;
    match output {
        PrintFormat::Json | PrintFormat::Yaml => {
            let answer = json!({ "kind": server.kind.name, "namespace": server.live.namespace, "name": server.name(),
                "accepted": accepted });
            print(&output.document("what is accepted", &answer)?)?;
        }
        _ => {
            let lines = accepted.iter().map(|(name, digest)| format!("accepted {} {digest}\n", shown_name(name)));
            print(&lines.collect::<String>())?;
            hint(&format!("the operator takes what still has its digest: see recif tools {}", server.argument()));
        }
    }
    Ok(Exit::Done)
}

/// Returns the names of all tools that wait, but of those that hide text.
fn all_but_hidden(server: &FoundServer) -> Vec<String> {
    let (taken, hidden): (Vec<_>, Vec<_>) = server.tools.held().partition(|tool| is_taken_with_all(tool));
    if !hidden.is_empty() {
        let names: Vec<_> = hidden.iter().map(|tool| shown_name(&tool.name)).collect();
        hint(&format!("not accepted, because they hide text; name them after reading: {}", names.join(", ")));
    }
    taken.into_iter().map(|tool| tool.name.clone()).collect()
}

/// Returns the digests that are given, as they are shown, by the names of their tools; and the names that are given without one.
pub(super) fn parse_tools(
    server: &FoundServer,
    words: &[String],
) -> Result<(BTreeMap<String, String>, Vec<String>), CliError> {
    let (mut accepted, mut unread) = (BTreeMap::new(), Vec::new());
    for word in words {
        let (name, shown) = match word.rsplit_once("=sha256:") {
            Some((name, _)) => (Some(name), &word[name.len() + 1..]),
            None if word.starts_with("sha256:") => (None, word.as_str()),
            None => {
                server.held_tool(word)?;
                unread.push(word.clone());
                continue;
            }
        };
        let hex = digest_hex(shown).ok_or_else(|| {
            CliError::Usage(format!("{word:?} does not end with a whole digest: copy all 64 digits that diff prints"))
        })?;
        let is_wanted = |tool: &&DiscoveredTool| tool.held_digest.as_deref() == Some(hex);
        let held = match name {
            Some(name) => Some(server.held_tool(name)?).filter(is_wanted),
            None => server.tools.held().find(is_wanted),
        };
        let tool = held.ok_or_else(|| {
            let what = name.map_or_else(|| "the tool".to_owned(), shown_name);
            CliError::NotReady(format!(
                "{what} has another definition by now than {shown}: read recif tools diff {}",
                server.argument()
            ))
        })?;
        accepted.insert(tool.name.clone(), shown.to_owned());
    }
    Ok((accepted, unread))
}

/// Checks that what is not accepted by its digest can be shown and asked for.
///
/// # Errors
/// `Usage` without a terminal.
pub(super) fn require_terminal(server: &FoundServer, is_terminal: bool) -> Result<(), CliError> {
    match is_terminal {
        true => Ok(()),
        false => Err(CliError::Usage(format!(
            "without a terminal tools are accepted by their digests, as NAME=sha256:DIGITS: recif tools diff {} prints them",
            server.argument()
        ))),
    }
}

/// Shows the definitions on stderr, and returns their digests, as they are shown, if the answer is yes.
pub(super) fn confirm(
    server: &FoundServer,
    shown: &[PendingChange],
    mut answers: impl BufRead,
) -> Result<BTreeMap<String, String>, CliError> {
    let unseen: Vec<_> = shown.iter().filter(|change| !change.is_kept()).map(PendingChange::argument).collect();
    if !unseen.is_empty() {
        return Err(CliError::Usage(format!(
            "what is not kept cannot be shown: read these definitions at the server, then recif tools accept {} {}",
            server.argument(),
            unseen.join(" ")
        )));
    }
    for change in shown {
        hint(change.text(0).trim_end_matches('\n'));
    }
    hint("accept these definitions? type yes");
    let mut answer = String::new();
    answers.read_line(&mut answer).map_err(|source| CliError::ReadFile { path: "stdin".into(), source })?;
    match answer.trim() {
        "y" | "yes" => Ok(shown.iter().map(|change| (change.name.clone(), shown_digest(&change.digest))).collect()),
        _ => Err(CliError::Interrupted("nothing is accepted".into())),
    }
}

/// Adds the digests to the annotation, again if another client changed the server meanwhile: two acceptances at once are both kept.
pub(super) async fn annotate(
    mut server: FoundServer,
    accepted: &BTreeMap<String, String>,
) -> Result<FoundServer, CliError> {
    let mut conflicts = 0;
    loop {
        let value = annotation(&server, accepted);
        let version = server.object.metadata.resource_version.as_deref();
        let sent = server.live.annotate(server.kind, server.name(), ACCEPT_TOOLS, &value, version).await;
        match sent {
            Err(error) if error.status() == Some(409) && conflicts < MAX_CONFLICTS => conflicts += 1,
            Err(error) => return Err(error.into()),
            Ok(()) => return Ok(server),
        }
        let name = server.name().to_owned();
        server = FoundServer::read_from(server.live, server.kind, &name).await?;
    }
}

/// Returns the value of the annotation, with what it says already and the operator has not read yet.
pub(super) fn annotation(server: &FoundServer, accepted: &BTreeMap<String, String>) -> String {
    let before = server.object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ACCEPT_TOOLS));
    let before = before.and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(text).ok());
    let mut digests = before.unwrap_or_default();
    digests.extend(accepted.iter().map(|(name, digest)| (name.clone(), digest.clone())));
    json!(digests).to_string()
}
