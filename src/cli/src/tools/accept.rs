//! Accepts definitions that wait, by their digests: an annotation of the server, which the operator reads and removes.

use std::collections::BTreeMap;

use crds::tool_pins::{ACCEPT_TOOLS, is_taken_with_all, shown_digest, shown_name};
use serde_json::json;

use super::FoundServer;
use crate::{
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint, print},
    target::ConnectArgs,
};

/// Fewest digits by which a digest is named.
const FEWEST_DIGITS: usize = 8;

/// Flags of `recif tools accept`.
#[derive(Debug, clap::Args)]
pub(super) struct ToolsAcceptArgs {
    /// The server, as KIND/NAME
    #[arg(value_name = "OBJECT")]
    object: String,
    /// Names of tools; NAME=sha256:DIGITS only while the definition has that digest, of which 8 digits are enough
    #[arg(value_name = "TOOL", required_unless_present = "all")]
    tools: Vec<String>,
    /// Accept all that wait, but for those that hide text, which are to be named
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
    let accepted = if all { all_but_hidden(&server) } else { named(&server, &tools)? };
    if accepted.is_empty() {
        hint(&format!("nothing waits to be accepted of {}", server.name()));
        return Ok(Exit::Done);
    }
    let value = annotation(&server, &accepted);
    server.live.annotate(server.kind, server.name(), ACCEPT_TOOLS, &value).await?;
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

/// Returns the digests of all tools that wait, as they are shown, but of those that hide text.
fn all_but_hidden(server: &FoundServer) -> BTreeMap<String, String> {
    let (taken, hidden): (Vec<_>, Vec<_>) = server.tools.held().partition(|tool| is_taken_with_all(tool));
    if !hidden.is_empty() {
        let names: Vec<_> = hidden.iter().map(|tool| shown_name(&tool.name)).collect();
        hint(&format!("not accepted, for they hide text; name them after reading: {}", names.join(", ")));
    }
    let digest = |held: &Option<String>| shown_digest(held.as_deref().unwrap_or_default());
    taken.into_iter().map(|tool| (tool.name.clone(), digest(&tool.held_digest))).collect()
}

/// Returns the digests of the tools that are named, as they are shown.
pub(super) fn named(server: &FoundServer, words: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut accepted = BTreeMap::new();
    for word in words {
        let (name, wanted) = match word.rsplit_once("=sha256:") {
            Some((name, digits)) => (name, Some(digits)),
            None => (word.as_str(), None),
        };
        let held = server.tools.held_tool(name).and_then(|tool| tool.held_digest.as_deref());
        let held = held.ok_or_else(|| server.not_held(name))?;
        if let Some(digits) = wanted {
            if digits.len() < FEWEST_DIGITS {
                return Err(CliError::Usage(format!(
                    "{word:?} names too few digits of the digest: write {FEWEST_DIGITS} at least"
                )));
            }
            if !held.starts_with(digits) {
                return Err(CliError::NotReady(format!(
                    "{} has another definition by now, {}: read recif tools diff {}",
                    shown_name(name),
                    shown_digest(held),
                    server.argument()
                )));
            }
        }
        accepted.insert(name.to_owned(), shown_digest(held));
    }
    Ok(accepted)
}

/// Returns the value of the annotation, with what it says already and the operator has not read yet.
pub(super) fn annotation(server: &FoundServer, accepted: &BTreeMap<String, String>) -> String {
    let before = server.object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ACCEPT_TOOLS));
    let before = before.and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(text).ok());
    let mut digests = before.unwrap_or_default();
    digests.extend(accepted.iter().map(|(name, digest)| (name.clone(), digest.clone())));
    json!(digests).to_string()
}
