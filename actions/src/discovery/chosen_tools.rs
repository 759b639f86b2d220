//! Tools that an entry of `toolServers` chooses of its server: whether they are there, and each of them as a Tool.

use std::collections::BTreeSet;

use crds::{
    Reference, Tool, ToolServerRef, ToolSpec,
    digest::{canonical_json, digest},
    tool::{ServerAccess, ServerRef, ServerVariables},
    tool_server::DiscoveredTool,
    tool_server_ref::{ToolChoice, short_digest},
};
use kube::core::ObjectMeta;
use serde_json::json;

use super::{
    held::held_words,
    server_tool::{ToolServerView, WRITING, complete, no_definition, no_such_tool, server_name},
};
use crate::ports::CacheReader;

/// State of the tools that a choice takes, for the objects that use them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChosenState {
    /// The tools are known: digest of everything that is used of them.
    Known(String),
    /// The server is not ready yet, as the text says, such as `is Resolving`.
    Pending(String),
    /// The user has to act, as the text says, such as `not found`.
    Missing(String),
    /// The server has tools, and the choice takes none of them.
    NoneChosen,
    /// The server lists no tool that matches these patterns, whose calls are to wait for a person.
    Unmatched(Vec<String>),
}

/// Returns the state of the tools that are chosen of a server, for objects in the namespace `from`. A tool that the server
/// gains or loses counts only if it is chosen, or if a pattern of `approval.tools` matches no other one.
pub(crate) fn chosen_state(
    cache: &dyn CacheReader,
    reference: &Reference,
    from: &str,
    choice: &ToolChoice,
) -> ChosenState {
    let server = match ToolServerView::admitted(cache, reference, from) {
        Ok(server) => server,
        Err(what) => return ChosenState::Missing(what),
    };
    let chosen: Vec<_> = server.tools.in_use().filter(|tool| choice.selects(&tool.name)).collect();
    let lacking = choice.named().find(|name| server.tools.tool(name).is_none());
    let unmatched = choice.unmatched(&server.tools.discovered_tools);
    if let Some(what) = server.pending(lacking.is_none() && !chosen.is_empty() && !unmatched.is_mistake) {
        return ChosenState::Pending(what);
    }
    if lacking.is_some() || chosen.is_empty() {
        // Of those that wait, the one that is named in full, or all that would be chosen.
        let is_meant = |tool: &&DiscoveredTool| match lacking {
            Some(name) => tool.name == name,
            None => choice.selects(&tool.name),
        };
        let held = held_words(server_name(reference), server.tools.held().filter(is_meant));
        return match (server.silence(), held, lacking) {
            (Some(what), ..) | (None, Some((_, what)), _) => ChosenState::Missing(what),
            (None, None, Some(tool)) => ChosenState::Missing(no_such_tool(&server.tools, tool)),
            (None, None, None) if server.tools.in_use().next().is_none() => {
                ChosenState::Missing("has no tools".to_owned())
            }
            (None, None, None) => ChosenState::NoneChosen,
        };
    }
    if unmatched.is_mistake {
        let unmatched = || ChosenState::Unmatched(texts(&unmatched.patterns));
        return server.silence().map_or_else(unmatched, ChosenState::Missing);
    }
    let Some(kept) = server.definitions(cache, reference, from) else {
        return ChosenState::Pending(WRITING.to_owned());
    };
    let is_defined = |tool: &str| kept.definitions.as_ref().is_some_and(|definitions| definitions.contains(tool));
    if let Some(tool) = choice.named().find(|tool| !is_defined(tool)) {
        return ChosenState::Missing(no_definition(tool));
    }
    let (mut tools, left_out): (Vec<&DiscoveredTool>, Vec<_>) =
        chosen.into_iter().partition(|tool| is_defined(&tool.name));
    if let Some(first) = left_out.first().filter(|_| tools.is_empty()) {
        return ChosenState::Missing(no_definition(&first.name));
    }
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    let tools: Vec<_> = tools.into_iter().map(|tool| (&tool.name, &tool.digest)).collect();
    let mut used = json!({ "url": server.url, "tools": tools });
    if !left_out.is_empty() {
        // The condition names them.
        used["leftOut"] = json!(left_out.iter().map(|tool| &tool.name).collect::<BTreeSet<_>>());
    }
    if !unmatched.patterns.is_empty() {
        // The condition names them, too.
        used["unmatched"] = json!(unmatched.patterns);
    }
    server.add_access(&mut used, cache, reference.namespace.as_deref().unwrap_or(from), from);
    ChosenState::Known(digest(&used))
}

/// Tools that an entry chooses of its server, by their names there.
#[derive(Debug, Default)]
pub(crate) struct ChosenTools {
    /// Each as a Tool that is called by the model's name for it and is completed by the server's definition.
    pub(crate) tools: Vec<(String, Tool)>,
    /// Those whose definitions do not fit into the server's ConfigMap.
    pub(crate) undefined: Vec<String>,
    /// Patterns of its `approval.tools` that match no tool that the server lists.
    pub(crate) unmatched: Vec<String>,
}

/// Returns the tools of an entry. None: the server is not there, or not for this namespace.
pub(crate) fn chosen_tools(cache: &dyn CacheReader, from: &str, entry: &ToolServerRef) -> ChosenTools {
    let found = || {
        let mut reference = Reference::new(entry.server_kind()?, &entry.name);
        reference.namespace = entry.namespace().map(str::to_owned);
        let server = ToolServerView::admitted(cache, &reference, from).ok()?;
        let kept = server.definitions(cache, &reference, from)?;
        Some((server, kept))
    };
    let Some((server, kept)) = found() else { return ChosenTools::default() };
    let Some(definitions) = kept.definitions.as_ref() else { return ChosenTools::default() };
    let choice = entry.choice();
    let access = access(&server, entry, from);
    let chosen = definitions.names().filter(|name| choice.selects(name));
    let tools = chosen.filter_map(|name| {
        let mut spec = ToolSpec::of_server(entry.tool_name(name), server_ref(entry, name));
        spec.forward_headers.clone_from(&entry.forward_headers);
        spec.approval = entry.approval_of(name).cloned();
        complete(&mut spec, access.clone(), server.url.clone(), definitions.get(name)?);
        let metadata = ObjectMeta { namespace: Some(from.to_owned()), ..ObjectMeta::default() };
        Some((name.to_owned(), Tool { metadata, spec, status: None }))
    });
    let listed = server.tools.in_use().map(|tool| &tool.name);
    let undefined = listed.filter(|name| choice.selects(name) && !definitions.contains(name));
    let unmatched = texts(&choice.unmatched(&server.tools.discovered_tools).patterns);
    ChosenTools { tools: tools.collect(), undefined: undefined.cloned().collect(), unmatched }
}

fn texts(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(|pattern| (*pattern).to_owned()).collect()
}

/// Returns the access to the server of an entry, whose headers take the place of the server's own.
fn access(server: &ToolServerView, entry: &ToolServerRef, from: &str) -> ServerAccess {
    let mut access = server.access_from(entry.namespace().unwrap_or(from), from);
    let replaced = |name: &str| entry.headers_from.iter().any(|header| header.name.eq_ignore_ascii_case(name));
    access.headers.retain(|header| !replaced(&header.name));
    access.headers.extend(entry.headers_from.iter().cloned());
    let identity = json!({
        "kind": entry.kind,
        "namespace": entry.namespace().unwrap_or(from),
        "server": entry.name,
        "prefix": entry.prefix,
        "headers": entry.headers_from,
    });
    access.variables = Some(ServerVariables {
        server: entry.name.clone(),
        digest: short_digest(&canonical_json(&identity)),
        is_unique: false,
    });
    access
}

fn server_ref(entry: &ToolServerRef, tool: &str) -> ServerRef {
    ServerRef {
        kind: entry.kind.clone(),
        namespace: entry.namespace.clone(),
        name: entry.name.clone(),
        tool_name: Some(tool.to_owned()),
        digest: None,
    }
}
