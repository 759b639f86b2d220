//! State of the server of a Tool, and the Tool completed with the definition of its server.

use std::sync::Arc;

use crds::{
    MCPServer, RefKind, Reference, ReferencePhase, RemoteMCPServer, Tool, ToolServerStatus, ToolSpec, WorkloadPhase,
    digest::digest,
    reason,
    tool::ServerAccess,
    tool_pins::digest_hex,
    tool_server::{AllowedNamespaces, ServerHeader, ServerTls, TOOLS_KEY, ValueSource, tools_config_map},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use meta::{CommonStatus, Phase, condition_type};
use serde_json::{Value, json};

use super::{
    McpToolDefinition,
    held::{NamedServer, held_words},
};
use crate::{
    allowed_namespaces::refusal,
    ports::{CacheReader, CachedChild, ChildKind, ChildRef},
};

/// State of a server's tool for the objects that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolState {
    /// The tool is known: digest of everything that is used of it, digest (hex) of its definition, why the server has another
    /// definition that waits, if so, and why the server cannot be reached, if so.
    Known {
        digest: String,
        definition: String,
        held: Option<(&'static str, String)>,
        unreachable: Option<(String, String)>,
    },
    /// The server is not ready yet, as the text says, such as `is Resolving`.
    Pending(String),
    /// The user has to act, as the text says, such as `not found`.
    Missing(String),
    /// The server has no such tool, as the text says.
    NoSuchTool(String),
    /// The tool waits until a person accepts it, for the reason and as the text says.
    NotAccepted { reason: &'static str, what: String },
}

/// Tool server of either kind, as the informer caches have it.
pub(super) struct ToolServerView {
    pub(super) url: String,
    machine: CommonStatus,
    pub(super) tools: ToolServerStatus,
    current: bool,
    /// `true` for an MCPServer, which runs in the cluster.
    in_cluster: bool,
    headers: Vec<ServerHeader>,
    sse: bool,
    tls: ServerTls,
    allowed: Option<AllowedNamespaces>,
}

impl ToolServerView {
    fn find(cache: &dyn CacheReader, kind: RefKind, namespace: &str, name: &str) -> Option<Self> {
        match kind {
            RefKind::RemoteMCPServer => {
                let server = cache.get::<RemoteMCPServer>(namespace, name)?;
                let status = server.status.clone().unwrap_or_default();
                let current = status.machine.observed_generation == server.metadata.generation;
                let url = server.spec.url.clone();
                let allowed = server.spec.allowed_namespaces.clone();
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
                let (tools, headers, tls) = (status.server, Vec::new(), ServerTls::default());
                Some(Self { url, machine, tools, current, in_cluster: true, headers, sse: false, tls, allowed: None })
            }
            _ => None,
        }
    }

    /// Returns the parameters of calls from a namespace. Pods read Secrets and ConfigMaps of their own namespace alone: in
    /// another one the objects of the same names are others, and not for this server.
    pub(super) fn access_from(&self, own: &str, from: &str) -> ServerAccess {
        let readable = self.headers.iter().filter(|header| header.value_from.is_none() || own == from);
        let mut tls = self.tls.clone();
        tls.ca_secret_ref = tls.ca_secret_ref.filter(|_| own == from);
        ServerAccess { headers: readable.cloned().collect(), sse: self.sse, tls, a2a: false, variables: None }
    }

    /// Reports whether the known tools belong to the current spec. An MCPServer keeps a known tool while it changes phase,
    /// because its old Pods serve; `known` says whether it has the tools that count.
    fn is_settled(&self, known: bool) -> bool {
        let phase = self.machine.phase.as_deref().filter(|_| self.current).unwrap_or_default();
        match self.in_cluster {
            false => ReferencePhase::parse(phase).is_some_and(Phase::is_settled),
            true if known => true,
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

    /// Returns the server of a reference, if objects in the namespace `from` may use it.
    ///
    /// # Errors
    /// What the user has to do something about, such as `not found`.
    pub(super) fn admitted(cache: &dyn CacheReader, reference: &Reference, from: &str) -> Result<Self, String> {
        let namespace = reference.namespace.as_deref().unwrap_or(from);
        let Some(server) = Self::find(cache, reference.kind, namespace, &reference.name) else {
            return Err("not found".to_owned());
        };
        if let Some(what) = refusal(cache, server.allowed.as_ref(), namespace, from) {
            return Err(what);
        }
        if namespace != from && !server.tls.system_cas {
            let why = "it trusts only its tls.caSecretRef, which other namespaces do not read";
            return Err(format!("may not be used from namespace {from:?}: {why}"));
        }
        Ok(server)
    }

    /// Returns what the server is still waited for, such as `is Resolving`; `known` as in `is_settled`.
    pub(super) fn pending(&self, known: bool) -> Option<String> {
        let phase = self.machine.written_phase().filter(|_| self.current);
        (!self.is_settled(known)).then(|| match phase {
            Some("Running") => "has not listed its tools yet".to_owned(),
            phase => format!("is {}", phase.unwrap_or("not yet seen by the operator")),
        })
    }

    /// Returns why the server lists no tools, if it does not answer.
    pub(super) fn silence(&self) -> Option<String> {
        self.problem().map(|(_, why)| match self.in_cluster {
            true => format!("does not list its tools: {why}"),
            false => format!("is in phase Error: {why}"),
        })
    }

    /// Returns the definitions of the tools in the status; `None` until they are written.
    pub(super) fn definitions(
        &self,
        cache: &dyn CacheReader,
        reference: &Reference,
        from: &str,
    ) -> Option<Arc<CachedChild>> {
        let namespace = reference.namespace.as_deref().unwrap_or(from);
        let kept = definitions_config_map(cache, reference.kind, namespace, &reference.name)?;
        (kept.data.get(TOOLS_KEY) == self.tools.tools_digest.as_ref()).then_some(kept)
    }

    /// Adds what calls of the server from the namespace `from` depend on besides the tools.
    pub(super) fn add_access(&self, used: &mut Value, cache: &dyn CacheReader, namespace: &str, from: &str) {
        let call = self.access_from(namespace, from);
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
    }
}

/// Returns the state of this tool of the server for objects in the namespace `from`.
pub(crate) fn tool_state(cache: &dyn CacheReader, reference: &Reference, from: &str, tool: &str) -> ToolState {
    let namespace = reference.namespace.as_deref().unwrap_or(from);
    let server = match ToolServerView::admitted(cache, reference, from) {
        Ok(server) => server,
        Err(what) => return ToolState::Missing(what),
    };
    let known = server.tools.tool(tool);
    if let Some(what) = server.pending(known.is_some()) {
        return ToolState::Pending(what);
    }
    let held = held_words(server_name(reference), server.tools.held_tool(tool));
    let Some(known) = known else {
        return match (server.silence(), held) {
            (Some(what), _) => ToolState::Missing(what),
            (None, Some((reason, what))) => ToolState::NotAccepted { reason, what },
            (None, None) => ToolState::NoSuchTool(no_such_tool(&server.tools, tool)),
        };
    };
    let Some(kept) = server.definitions(cache, reference, from) else {
        return ToolState::Pending(WRITING.to_owned());
    };
    if !kept.definitions.as_ref().is_some_and(|definitions| definitions.contains(tool)) {
        return match held {
            // Another client removed the accepted one.
            Some((reason, what)) => ToolState::NotAccepted { reason, what },
            None => ToolState::Missing(no_definition(tool)),
        };
    }
    let mut used = json!({ "url": server.url, "tool": known.digest });
    server.add_access(&mut used, cache, namespace, from);
    ToolState::Known { digest: digest(&used), definition: known.digest.clone(), held, unreachable: server.problem() }
}

/// Returns the server of a reference as sentences name it.
pub(super) fn server_name(reference: &Reference) -> NamedServer<'_> {
    NamedServer { kind: reference.kind.as_str(), namespace: reference.namespace.as_deref(), name: &reference.name }
}

/// State of a server whose tools are known, and their definitions not yet.
pub(super) const WRITING: &str = "is writing its definitions";

/// Returns the problem of a tool that the server does not have.
pub(super) fn no_such_tool(server: &ToolServerStatus, tool: &str) -> String {
    format!("has no tool {tool:?}{}", other_tool_names(server))
}

/// Returns the problem of a tool whose definition does not fit into the server's ConfigMap.
pub(super) fn no_definition(tool: &str) -> String {
    format!("has too many definitions: that of {tool:?} is left out")
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
    let names: Vec<_> = server.in_use().take(FEW).map(|tool| tool.name.as_str()).collect();
    match (names.len(), server.in_use().count() > FEW) {
        (0, _) => ": it has none".to_owned(),
        (_, more) => format!(": it has {}{}", names.join(", "), if more { " …" } else { "" }),
    }
}

/// Returns the Tool as it is rendered: with the URL of its server, and the server's definition where the Tool leaves a field
/// unset. `None`: it refers to no server, its definition is not known, or it is not the one that the Tool names by its digest.
pub(crate) fn resolve_tool(cache: &dyn CacheReader, namespace: &str, tool: &Tool) -> Option<Arc<Tool>> {
    let (reference, name) = tool.spec.served_by()?;
    let from = namespace;
    let namespace = reference.namespace.as_deref().filter(|other| !other.is_empty()).unwrap_or(from);
    let kind = RefKind::parse(&reference.kind)?;
    let server = ToolServerView::find(cache, kind, namespace, &reference.name)?;
    let accepted = server.tools.tool(name)?;
    if reference.digest.as_deref().is_some_and(|pinned| digest_hex(pinned) != Some(accepted.digest.as_str())) {
        return None;
    }
    let found = Reference { namespace: Some(namespace.to_owned()), ..Reference::new(kind, &reference.name) };
    let definition = server.definitions(cache, &found, from)?.definitions.as_ref()?.get(name)?;
    let access = server.access_from(namespace, from);
    let mut tool = tool.clone();
    complete(&mut tool.spec, access, server.url, definition);
    Some(Arc::new(tool))
}

/// Completes a Tool with the access to its server, and with the server's definition where the Tool leaves a field unset.
pub(super) fn complete(spec: &mut ToolSpec, access: ServerAccess, url: String, definition: McpToolDefinition) {
    spec.call = access;
    let own = |header: &ServerHeader| {
        let names = spec.headers.keys().chain(spec.headers_from.iter().map(|from| &from.name));
        names.into_iter().any(|name| name.eq_ignore_ascii_case(&header.name))
    };
    let others: Vec<_> = spec.call.headers.iter().filter(|header| !own(header)).cloned().collect();
    spec.call.headers = others;
    spec.mcp_endpoint = Some(url);
    if spec.description.as_deref().unwrap_or_default().is_empty() {
        spec.description = Some(definition.description).filter(|text| !text.is_empty());
    }
    if spec.parameters.is_empty() && spec.input_schema.is_none() {
        spec.input_schema = Some(definition.input_schema);
    }
    spec.output_schema = spec.output_schema.take().or(definition.output_schema);
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
