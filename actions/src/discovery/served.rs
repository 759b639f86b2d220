//! A Tool that is a server's: how that server stands, and the Tool with what the server says of it.

use std::sync::Arc;

use crds::{
    MachineStatus, Phase, RefKind, ReferencePhase, Tool, ToolServerStatus,
    digest::digest,
    tool_server::{TOOLS_KEY, tools_config_map},
};
use serde_json::json;

use super::Definition;
use crate::ports::{Child, ChildKind, ChildRef, Views};

/// How a server stands towards those that use one of its tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The tool is known; the digest of what is used of it, and why the server cannot be reached, if so.
    Known { digest: String, unreachable: Option<(String, String)> },
    /// The server is on its way; what it is, such as `is Resolving`.
    NotYet(String),
    /// Somebody has to act; what it is, such as `not found`.
    Missing(String),
    /// The server has no such tool; what it is.
    Gone(String),
}

/// A server, whatever its kind.
struct Server {
    url: String,
    machine: MachineStatus,
    tools: ToolServerStatus,
    current: bool,
}

impl Server {
    fn find(views: &dyn Views, kind: RefKind, namespace: &str, name: &str) -> Option<Self> {
        match kind {
            RefKind::RemoteMCPServer => {
                let server = views.remote_mcp_server(namespace, name)?;
                let status = server.status.clone().unwrap_or_default();
                let current = status.machine.observed_generation == server.metadata.generation;
                Some(Self { url: server.spec.url.clone(), machine: status.machine, tools: status.server, current })
            }
            _ => None,
        }
    }

    fn ready_words(&self) -> (String, String) {
        let ready = self.machine.conditions.iter().find(|found| found.type_ == "Ready");
        ready.map(|ready| (ready.reason.clone(), ready.message.clone())).unwrap_or_default()
    }
}

/// How the server stands towards those that use this tool of it.
pub(crate) fn standing(views: &dyn Views, kind: RefKind, namespace: &str, name: &str, tool: &str) -> Standing {
    let Some(server) = Server::find(views, kind, namespace, name) else {
        return Standing::Missing("not found".to_owned());
    };
    let phase = server.machine.phase.as_deref().and_then(ReferencePhase::parse).filter(|_| server.current);
    let failed = phase == Some(ReferencePhase::Error);
    match server.tools.tool(tool) {
        _ if !phase.is_some_and(Phase::is_settled) => {
            let phase = server.machine.phase.as_deref().filter(|_| server.current);
            Standing::NotYet(format!("is {}", phase.unwrap_or("not yet seen by the operator")))
        }
        None if failed => Standing::Missing(format!("is in phase Error: {}", server.ready_words().1)),
        None => Standing::Gone(format!("has no tool {tool:?}{}", others(&server.tools))),
        Some(known) => match kept(views, namespace, name) {
            Some(kept) if kept.data.get(TOOLS_KEY) == server.tools.tools_digest.as_ref() => {
                match definition(&kept, tool) {
                    None => Standing::Missing(format!("has too many definitions: that of {tool:?} is left out")),
                    Some(_) => Standing::Known {
                        digest: digest(&json!({ "url": server.url, "tool": known.digest })),
                        unreachable: failed.then(|| server.ready_words()),
                    },
                }
            }
            _ => Standing::NotYet("is writing its definitions".to_owned()),
        },
    }
}

/// The names of a few tools, for whoever wrote another one.
fn others(server: &ToolServerStatus) -> String {
    const FEW: usize = 10;
    let names: Vec<_> = server.discovered_tools.iter().take(FEW).map(|tool| tool.name.as_str()).collect();
    match (names.len(), server.discovered_tools.len() > FEW) {
        (0, _) => ": it has none".to_owned(),
        (_, more) => format!(": it has {}{}", names.join(", "), if more { " …" } else { "" }),
    }
}

/// The Tool as it is rendered: where its server is, and what the server says where the Tool says nothing. `None`: it is no
/// server's, or nothing is known of it.
pub(crate) fn served(views: &dyn Views, namespace: &str, tool: &Tool) -> Option<Arc<Tool>> {
    let (reference, name) = tool.spec.served_by()?;
    let server = Server::find(views, RefKind::parse(&reference.kind)?, namespace, &reference.name)?;
    let definition = definition(kept(views, namespace, &reference.name)?.as_ref(), name)?;
    let mut tool = tool.clone();
    let spec = &mut tool.spec;
    spec.mcp_endpoint = Some(server.url);
    if spec.description.as_deref().unwrap_or_default().is_empty() {
        spec.description = Some(definition.description).filter(|text| !text.is_empty());
    }
    if spec.parameters.is_empty() && spec.input_schema.is_none() {
        spec.input_schema = Some(definition.input_schema);
    }
    spec.output_schema = spec.output_schema.take().or(definition.output_schema);
    Some(Arc::new(tool))
}

fn kept(views: &dyn Views, namespace: &str, server: &str) -> Option<Arc<Child>> {
    let (namespace, name) = (namespace.to_owned(), tools_config_map(server));
    views.child(&ChildRef { kind: ChildKind::ConfigMap, namespace, name })
}

fn definition(kept: &Child, name: &str) -> Option<Definition> {
    let all: Vec<Definition> = serde_json::from_str(kept.definitions.as_deref()?).ok()?;
    all.into_iter().find(|tool| tool.name == name)
}
