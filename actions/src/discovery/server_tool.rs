//! State of the server of a Tool, and the Tool completed with the definition of its server.

use std::sync::Arc;

use crds::{
    MCPServer, RefKind, Reference, ReferencePhase, RemoteMCPServer, Tool, ToolServerStatus, WorkloadPhase,
    digest::digest,
    reason,
    tool::ServerAccess,
    tool_server::{AllowedNamespaces, ServerHeader, ServerTls, TOOLS_KEY, ValueSource, tools_config_map},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use meta::{CommonStatus, Phase, condition_type};
use serde_json::json;

use crate::ports::{CacheReader, CachedChild, ChildKind, ChildRef};

/// State of a server's tool for the objects that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolState {
    /// The tool is known: digest of everything that is used of it, and why the server cannot be reached, if so.
    Known { digest: String, unreachable: Option<(String, String)> },
    /// The server is not ready yet, as the text says, such as `is Resolving`.
    Pending(String),
    /// The user has to act, as the text says, such as `not found`.
    Missing(String),
    /// The server has no such tool, as the text says.
    NoSuchTool(String),
}

/// Tool server of either kind, as the informer caches have it.
struct ToolServerView {
    url: String,
    machine: CommonStatus,
    tools: ToolServerStatus,
    current: bool,
    /// `true` for an MCPServer, which runs in the cluster.
    in_cluster: bool,
    headers: Vec<ServerHeader>,
    sse: bool,
    tls: ServerTls,
    allowed: AllowedNamespaces,
}

impl ToolServerView {
    fn find(cache: &dyn CacheReader, kind: RefKind, namespace: &str, name: &str) -> Option<Self> {
        match kind {
            RefKind::RemoteMCPServer => {
                let server = cache.get::<RemoteMCPServer>(namespace, name)?;
                let status = server.status.clone().unwrap_or_default();
                let current = status.machine.observed_generation == server.metadata.generation;
                let url = server.spec.url.clone();
                let allowed = server.spec.allowed_namespaces.clone().unwrap_or_default();
                let (headers, sse) = (server.spec.headers_from.clone(), server.spec.protocol == "SSE");
                let tls = server.spec.tls.clone().unwrap_or_default();
                let (machine, tools) = (status.machine, status.server);
                Some(Self { url, machine, tools, current, in_cluster: false, headers, sse, tls, allowed })
            }
            RefKind::MCPServer => {
                let server = cache.get::<MCPServer>(namespace, name)?;
                let status = server.status.clone().unwrap_or_default();
                let (machine, url) = (status.workload.machine, status.workload.endpoint.unwrap_or_default());
                let current = machine.observed_generation == server.metadata.generation;
                let allowed = AllowedNamespaces::default();
                let (tools, headers, tls) = (status.server, Vec::new(), ServerTls::default());
                Some(Self { url, machine, tools, current, in_cluster: true, headers, sse: false, tls, allowed })
            }
            _ => None,
        }
    }

    /// Returns the parameters of calls from a namespace. Pods read Secrets and ConfigMaps of their own namespace alone: in
    /// another one the objects of the same names are others, and not for this server.
    fn access_from(&self, own: &str, from: &str) -> ServerAccess {
        let readable = self.headers.iter().filter(|header| header.value_from.is_none() || own == from);
        let mut tls = self.tls.clone();
        tls.ca_secret_ref = tls.ca_secret_ref.filter(|_| own == from);
        ServerAccess { headers: readable.cloned().collect(), sse: self.sse, tls }
    }

    /// Reports whether the known tools belong to the current spec. An MCPServer keeps a known tool while it changes phase,
    /// because its old Pods serve.
    fn is_settled(&self, tool: &str) -> bool {
        let phase = self.machine.phase.as_deref().filter(|_| self.current).unwrap_or_default();
        match self.in_cluster {
            false => ReferencePhase::parse(phase).is_some_and(Phase::is_settled),
            true if self.tools.tool(tool).is_some() => true,
            true => match WorkloadPhase::parse(phase) {
                Some(WorkloadPhase::Running) => self.tools.tools_digest.is_some() || self.problem().is_some(),
                phase => phase.is_some_and(Phase::is_settled),
            },
        }
    }

    /// Returns the reason and message why the server does not answer, if so.
    fn problem(&self) -> Option<(String, String)> {
        let words = |found: &Condition| (found.reason.clone(), found.message.clone());
        if !self.in_cluster {
            let failed = self.machine.phase.as_deref() == Some(ReferencePhase::Error.as_str());
            return self.machine.condition(condition_type::READY).filter(|_| failed).map(words);
        }
        let unavailable = self.machine.condition(condition_type::AVAILABLE).filter(|found| found.status == "False");
        let silent = self
            .machine
            .condition(condition_type::TOOLS_DISCOVERED)
            .filter(|found| reason::DISCOVERY_FAILURES.contains(&found.reason.as_str()));
        unavailable.or(silent).map(words)
    }
}

/// Returns the state of this tool of the server for objects in the namespace `from`.
pub(crate) fn tool_state(cache: &dyn CacheReader, reference: &Reference, from: &str, tool: &str) -> ToolState {
    let (namespace, name) = (reference.namespace.as_deref().unwrap_or(from), reference.name.as_str());
    let Some(server) = ToolServerView::find(cache, reference.kind, namespace, name) else {
        return ToolState::Missing("not found".to_owned());
    };
    if namespace != from && !server.allowed.admits(cache.namespace_labels(from).as_deref()) {
        let ask = "let its spec.allowedNamespaces allow it";
        return ToolState::Missing(format!("may not be used from namespace {from:?}: {ask}"));
    }
    match server.tools.tool(tool) {
        _ if !server.is_settled(tool) => {
            let phase = server.machine.written_phase().filter(|_| server.current);
            ToolState::Pending(match phase {
                Some("Running") => "has not listed its tools yet".to_owned(),
                phase => format!("is {}", phase.unwrap_or("not yet seen by the operator")),
            })
        }
        None => match server.problem() {
            Some((_, why)) if server.in_cluster => ToolState::Missing(format!("does not list its tools: {why}")),
            Some((_, why)) => ToolState::Missing(format!("is in phase Error: {why}")),
            None => ToolState::NoSuchTool(format!("has no tool {tool:?}{}", other_tool_names(&server.tools))),
        },
        Some(known) => match definitions_config_map(cache, reference.kind, namespace, name) {
            Some(kept) if kept.data.get(TOOLS_KEY) == server.tools.tools_digest.as_ref() => {
                match kept.definitions.as_ref().is_some_and(|definitions| definitions.contains(tool)) {
                    false => ToolState::Missing(format!("has too many definitions: that of {tool:?} is left out")),
                    true => {
                        let mut used = json!({ "url": server.url, "tool": known.digest });
                        let call = server.access_from(namespace, from);
                        if call != ServerAccess::default() {
                            let sources = call.headers.iter().map(|header| header.value_from.clone());
                            let values: Vec<_> = sources.map(|it| value_digest(cache, namespace, &it?)).collect();
                            used["call"] = json!({ "headers": call.headers, "values": values, "sse": call.sse });
                        }
                        if call.tls != ServerTls::default() {
                            used["tls"] = json!(call.tls);
                            let authority = call.tls.ca_secret_ref.map(ValueSource::from);
                            used["authority"] = json!(authority.map(|it| value_digest(cache, namespace, &it)));
                        }
                        ToolState::Known { digest: digest(&used), unreachable: server.problem() }
                    }
                }
            }
            _ => ToolState::Pending("is writing its definitions".to_owned()),
        },
    }
}

/// Returns the digest of a value in a Secret or ConfigMap.
fn value_digest(cache: &dyn CacheReader, namespace: &str, from: &ValueSource) -> Option<String> {
    let kind = if from.is_secret() { ChildKind::Secret } else { ChildKind::ConfigMap };
    let (namespace, name) = (namespace.to_owned(), from.name.clone());
    cache.child(&ChildRef { kind, namespace, name })?.data.get(&from.key).cloned()
}

/// Lists the names of a few tools, for the author of a Tool that names another one.
fn other_tool_names(server: &ToolServerStatus) -> String {
    const FEW: usize = 10;
    let names: Vec<_> = server.discovered_tools.iter().take(FEW).map(|tool| tool.name.as_str()).collect();
    match (names.len(), server.discovered_tools.len() > FEW) {
        (0, _) => ": it has none".to_owned(),
        (_, more) => format!(": it has {}{}", names.join(", "), if more { " …" } else { "" }),
    }
}

/// Returns the Tool as it is rendered: with the URL of its server, and the server's definition where the Tool leaves a field
/// unset. `None`: it refers to no server, or its definition is not known.
pub(crate) fn resolve_tool(cache: &dyn CacheReader, namespace: &str, tool: &Tool) -> Option<Arc<Tool>> {
    let (reference, name) = tool.spec.served_by()?;
    let from = namespace;
    let namespace = reference.namespace.as_deref().filter(|other| !other.is_empty()).unwrap_or(from);
    let kind = RefKind::parse(&reference.kind)?;
    let server = ToolServerView::find(cache, kind, namespace, &reference.name)?;
    let definition =
        definitions_config_map(cache, kind, namespace, &reference.name)?.definitions.as_ref()?.get(name)?;
    let mut tool = tool.clone();
    let spec = &mut tool.spec;
    spec.call = server.access_from(namespace, from);
    let own = |header: &ServerHeader| {
        let names = spec.headers.keys().chain(spec.headers_from.iter().map(|from| &from.name));
        names.into_iter().any(|name| name.eq_ignore_ascii_case(&header.name))
    };
    let others: Vec<_> = spec.call.headers.iter().filter(|header| !own(header)).cloned().collect();
    spec.call.headers = others;
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

fn definitions_config_map(
    cache: &dyn CacheReader,
    kind: RefKind,
    namespace: &str,
    server: &str,
) -> Option<Arc<CachedChild>> {
    let (namespace, name) = (namespace.to_owned(), tools_config_map(kind.as_str(), server));
    cache.child(&ChildRef { kind: ChildKind::ConfigMap, namespace, name })
}
