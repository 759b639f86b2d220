//! Lists the tools of a server: which are in use, with which digest, and what waits.

use std::fmt::Write as _;

use crds::{ToolServerStatus, hidden_text::escape_hidden, tool_pins::shown_digest, tool_server::DiscoveredTool};
use serde_json::{Value, json};

use super::FoundServer;
use crate::{
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint, print, print_escaped},
    target::ConnectArgs,
};

/// Titles of the columns.
const TITLES: [&str; 4] = ["NAME", "STATE", "DIGEST", "SINCE"];
/// Blanks between two columns.
const GAP: usize = 3;

/// Prints the tools of a server.
pub(super) async fn run(word: &str, connection: ConnectArgs, output: PrintFormat) -> Result<Exit, CliError> {
    let server = FoundServer::read(word, connection).await?;
    if matches!(output, PrintFormat::Json | PrintFormat::Yaml) {
        print_escaped(&output.document("the tools", &document(&server))?)?;
        return Ok(Exit::Done);
    }
    match server.tools.tools_digest {
        Some(_) => print(&table(&server.tools))?,
        None => hint(&format!("{} has not listed its tools yet", server.name())),
    }
    if server.tools.held().next().is_some() {
        hint(&format!("what waits is shown by: recif tools diff {}", server.argument()));
    }
    Ok(Exit::Done)
}

fn document(server: &FoundServer) -> Value {
    let tool = |tool: &DiscoveredTool| {
        json!({ "name": tool.name, "state": state(tool), "description": tool.description,
            "digest": tool.is_in_use().then(|| shown_digest(&tool.digest)),
            "heldDigest": tool.held_digest.as_deref().map(shown_digest), "heldAt": tool.held_at })
    };
    let gone = server.tools.gone_tools.iter();
    let gone = gone.map(|tool| json!({ "name": tool.name, "digest": shown_digest(&tool.digest) }));
    json!({ "kind": server.kind.name, "namespace": server.live.namespace, "name": server.name(),
        "tools": server.tools.discovered_tools.iter().map(tool).collect::<Vec<_>>(), "gone": gone.collect::<Vec<_>>() })
}

/// Returns the state of a tool in a word: that it is in use, or why its definition at the server waits.
fn state(tool: &DiscoveredTool) -> &str {
    match &tool.held_digest {
        None => "InUse",
        Some(_) => tool.held_reason.as_deref().unwrap_or("Held"),
    }
}

/// Returns the columns: the digest is that of the definition in use, or of the one that waits where none is.
pub(super) fn table(tools: &ToolServerStatus) -> String {
    let listed = tools.discovered_tools.iter().map(|tool| {
        let digest = if tool.is_in_use() { Some(&tool.digest) } else { tool.held_digest.as_ref() };
        let since = tool.held_at.as_ref().map(|since| since.0.to_string()).unwrap_or_default();
        let digest = digest.map(|digest| shown_digest(digest)).unwrap_or_default();
        [escape_hidden(&tool.name), escape_hidden(state(tool)), digest, since]
    });
    let gone = tools.gone_tools.iter();
    let gone = gone.map(|tool| [escape_hidden(&tool.name), "Gone".into(), shown_digest(&tool.digest), String::new()]);
    let rows: Vec<[String; 4]> = std::iter::once(TITLES.map(str::to_owned)).chain(listed).chain(gone).collect();
    let mut widths = [0; 4];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Cannot fail: it writes to memory.
            let _ = write!(line, "{cell:<width$}", width = width + GAP);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
