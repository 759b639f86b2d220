//! `recif tools`: the tools of an MCP server, what waits to be accepted of them, and its acceptance.
//!
//! A server may change what a tool says of itself after agents were given it. Where its `onChange` is Hold, agents keep the
//! definition that was accepted. A person reads the difference here, and accepts it by the whole digest that was shown: the command
//! only sets an annotation, and the operator takes what still has that digest.

mod accept;
mod diff;
mod list;

use crds::{ApiKind, ToolServerStatus, tool::ServerRef, tool_pins::shown_name, tool_server::DiscoveredTool};
use kube::api::DynamicObject;
use serde::Deserialize as _;

use crate::{
    cluster::UserClient,
    error::CliError,
    exit::Exit,
    output::PrintFormat,
    target::{ConnectArgs, TargetArgs},
};

/// Flags of `recif tools`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    flatten_help = true,
    after_help = "To list needs the right to get the server, diff that to get ConfigMaps as well, accept that to patch the \
                  server.\n\nExamples:\n  recif tools rmcp/docs                            # its tools, their digests, and \
                  what waits\n  recif tools diff rmcp/docs                       # what the server changed, and the command \
                  that accepts it\n  recif tools accept rmcp/docs search=sha256:…     # what was shown, while the server \
                  still has it\n  recif tools accept rmcp/docs search              # shows it, and asks\n  recif tools \
                  accept rmcp/docs --all               # shows all but what hides text, and asks"
)]
pub struct ToolsArgs {
    #[command(subcommand)]
    command: Option<ToolsCommand>,
    /// The server, as KIND/NAME; KIND is mcpserver (mcp) or remotemcpserver (rmcp)
    #[arg(value_name = "OBJECT")]
    object: Option<String>,
    #[command(flatten)]
    connection: ConnectArgs,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
}

/// What is done with the tools, other than to list them.
#[derive(Debug, clap::Subcommand)]
enum ToolsCommand {
    /// Show how definitions that wait differ from the accepted ones
    Diff(diff::ToolsDiffArgs),
    /// Accept definitions that wait
    Accept(accept::ToolsAcceptArgs),
}

/// Lists the tools of a server, or runs a command on them.
pub(super) async fn run(args: ToolsArgs) -> Result<Exit, CliError> {
    let ToolsArgs { command, object, connection, output } = args;
    match (command, object) {
        (Some(ToolsCommand::Diff(args)), _) => diff::run(args).await,
        (Some(ToolsCommand::Accept(args)), _) => accept::run(args).await,
        (None, Some(object)) => list::run(&object, connection, output).await,
        (None, None) => Err(CliError::Usage("name a server, as rmcp/docs or mcp/time".into())),
    }
}

/// Tool server that a command is about, with the status of its tools.
struct FoundServer {
    live: UserClient,
    kind: &'static ApiKind,
    object: DynamicObject,
    tools: ToolServerStatus,
}

impl FoundServer {
    /// Reads the server that a word names.
    async fn read(word: &str, connection: ConnectArgs) -> Result<Self, CliError> {
        let (kind, name) = server(word)?;
        let live = connection.connect().await?;
        Self::read_from(live, kind, &name).await
    }

    async fn read_from(live: UserClient, kind: &'static ApiKind, name: &str) -> Result<Self, CliError> {
        let object = live.object(kind, name).await?.ok_or_else(|| CliError::missing(&live, kind, name))?;
        let tools = tools_of(&object);
        Ok(Self { live, kind, object, tools })
    }

    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the server as an argument of these commands, such as `rmcp/docs -n team`.
    fn argument(&self) -> String {
        format!("{}/{} -n {}", self.kind.short, self.name(), self.live.namespace)
    }

    /// Returns the tool of this name, whose definition waits.
    ///
    /// # Errors
    /// `NotFound` if nothing waits of it.
    fn held_tool(&self, name: &str) -> Result<&DiscoveredTool, CliError> {
        self.tools.held_tool(name).ok_or_else(|| self.not_held(name))
    }

    fn not_held(&self, tool: &str) -> CliError {
        let held: Vec<_> = self.tools.held().map(|tool| shown_name(&tool.name)).collect();
        let held = if held.is_empty() { "none".to_owned() } else { held.join(", ") };
        let tool = shown_name(tool);
        CliError::NotFound(format!("no definition of {tool} waits to be accepted; those that wait: {held}"))
    }
}

/// Returns the status of the tools of a server; an empty one before its first discovery.
fn tools_of(object: &DynamicObject) -> ToolServerStatus {
    let status = object.data.get("status").map(ToolServerStatus::deserialize);
    status.and_then(Result::ok).unwrap_or_default()
}

/// Returns the kind and the name of the tool server that a word names.
fn server(word: &str) -> Result<(&'static ApiKind, String), CliError> {
    let target = TargetArgs { object: vec![word.to_owned()] };
    let (kind, name) = target.parse()?;
    if !ServerRef::KINDS.contains(&kind.name) {
        return Err(CliError::Usage(format!(
            "{} is not a kind of MCP server: name an MCPServer or RemoteMCPServer, as mcp/time or rmcp/docs",
            kind.name
        )));
    }
    Ok((kind, name.to_owned()))
}

#[cfg(test)]
mod tests;
