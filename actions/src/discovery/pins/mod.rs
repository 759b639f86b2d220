//! Pins the definitions of a server's tools: decides which of those that it lists are used, and which wait until a person accepts
//! them ([`OnChange`]). Pure.
//!
//! The digests in the status say what was accepted; the ConfigMap holds the texts. A text that is not that of its digest, because
//! another client changed it, is not used: it comes back with the server's answer, or waits to be accepted. The ConfigMap is written
//! first, so a text whose digest is being accepted counts as accepted before the status says so.

use std::collections::{BTreeMap, BTreeSet};

use crds::{
    ToolServerStatus,
    digest::sha256_hex,
    reason,
    tool_pins::OnChange,
    tool_server::{DiscoveredTool, GoneTool},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Catalog, McpToolDefinition, catalog::short_description, definitions::Definitions, status_size::limit_gone,
};

/// Most bytes of the definitions that wait, in the ConfigMap.
const MAX_HELD: usize = 300 * 1024;
/// Most bytes of all values of a ConfigMap.
const MAX_CONFIG_MAP: usize = 1024 * 1024;

/// Inputs of the decision besides the server's list.
#[derive(Clone, Copy)]
pub(super) struct PinInputs<'a> {
    /// Reaction to what changed or is new.
    pub(super) on_change: OnChange,
    /// Status after the previous discovery.
    pub(super) before: &'a ToolServerStatus,
    /// Definitions in the ConfigMap.
    pub(super) kept: Option<&'a Definitions>,
    /// Digests (hex) of definitions that a person accepts, by name.
    pub(super) accepted: &'a BTreeMap<String, String>,
    /// Time, in whole seconds.
    pub(super) now: Timestamp,
}

/// Tools of a server after the decision.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PinnedTools {
    /// The tools that the server lists, with the definitions that are used.
    pub(super) catalog: Catalog,
    /// Accepted tools that the server does not list as they were accepted.
    pub(super) gone: Vec<GoneTool>,
    /// Definitions that wait, as JSON; `None` if none does.
    pub(super) held: Option<String>,
}

/// Definition that waits, as the ConfigMap gets it: [`HeldTool`](crds::tool_pins::HeldTool) reads it.
#[derive(Clone, Copy, Serialize)]
struct HeldEntry<'a> {
    name: &'a str,
    reason: &'static str,
    digest: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hides: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<&'a RawValue>,
}

/// Decides on each listed tool. The first list of a server is taken; what hides text waits even then.
pub(super) fn pin(listed: &Catalog, inputs: PinInputs<'_>) -> PinnedTools {
    let PinInputs { on_change, before, kept, accepted, now } = inputs;
    if listed.fits() && is_as_accepted(listed, before) {
        return PinnedTools { catalog: listed.clone(), gone: Vec::new(), held: None };
    }
    let takes_new = before.tools_digest.is_none() || on_change == OnChange::Adopt;
    let in_use: BTreeMap<&str, &DiscoveredTool> = before.in_use().map(|tool| (tool.name.as_str(), tool)).collect();
    let held_before: BTreeMap<&str, &DiscoveredTool> = before.held().map(|tool| (tool.name.as_str(), tool)).collect();
    let mut gone: BTreeMap<&str, &str> =
        before.gone_tools.iter().map(|tool| (tool.name.as_str(), tool.digest.as_str())).collect();
    let (mut tools, mut texts, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for tool in &listed.tools {
        let name = tool.name.as_str();
        let known = in_use.get(name).copied();
        let hides = listed.hidden.get(name);
        let was_accepted = known.is_some_and(|known| known.digest == tool.digest)
            || gone.get(name).is_some_and(|digest| *digest == tool.digest)
            || accepted.get(name) == Some(&tool.digest);
        let text = listed.definitions.text_of(name);
        if was_accepted || (takes_new && hides.is_none()) {
            tools.push(tool.clone());
            texts.extend(text.map(|text| (name, text)));
            continue;
        }
        let written = kept.and_then(|kept| kept.text_of(name)).map(|text| (sha256_hex(text.as_bytes()), text));
        // Accepted and written, and not yet in the status: the operator ended between the two writes.
        let taken = written.as_ref().filter(|(digest, _)| accepted.get(name) == Some(digest));
        let known = match taken {
            Some((digest, text)) => Some(accepted_tool(name, digest, text)),
            None => known.cloned(),
        };
        let reason = match (hides, &known) {
            (Some(_), _) => reason::HIDDEN_TEXT,
            (None, Some(_)) => reason::TOOL_CHANGED,
            (None, None) => reason::TOOL_NOT_ACCEPTED,
        };
        if let Some(known) = &known {
            let used = written.as_ref().filter(|(digest, _)| *digest == known.digest);
            texts.extend(used.map(|(_, text)| (name, *text)));
        }
        let since = held_before.get(name).filter(|_| taken.is_none()).and_then(|held| held.held_at.clone());
        tools.push(DiscoveredTool {
            held_digest: Some(tool.digest.clone()),
            held_at: Some(since.unwrap_or(Time(now))),
            held_reason: Some(reason.to_owned()),
            ..known.unwrap_or_else(|| DiscoveredTool { name: name.to_owned(), ..DiscoveredTool::default() })
        });
        let definition = text.and_then(|text| serde_json::from_str(text).ok());
        let hides = hides.map(String::as_str);
        waiting.push(HeldEntry { name, reason, digest: &tool.digest, hides, definition });
    }
    let used: BTreeSet<&str> = tools.iter().filter(|tool| tool.is_in_use()).map(|tool| tool.name.as_str()).collect();
    gone.extend(in_use.iter().map(|(name, tool)| (*name, tool.digest.as_str())));
    let gone = gone.into_iter().filter(|(name, _)| on_change == OnChange::Hold && !used.contains(name));
    let gone = gone.map(|(name, digest)| GoneTool { name: name.to_owned(), digest: digest.to_owned() });
    let gone: Vec<GoneTool> = gone.collect();
    let catalog = match waiting.is_empty() && listed.fits() {
        true => listed.clone(),
        false => listed.with_definitions(tools, texts, kept),
    };
    let held = held_text(&waiting, catalog.definitions.text().len());
    let gone = limit_gone(gone, &catalog.tools);
    PinnedTools { catalog, gone, held }
}

/// Returns a tool in use with this definition.
fn accepted_tool(name: &str, digest: &str, text: &str) -> DiscoveredTool {
    let definition = serde_json::from_str::<McpToolDefinition>(text).unwrap_or_default();
    DiscoveredTool {
        name: name.to_owned(),
        description: short_description(&definition.description),
        digest: digest.to_owned(),
        ..DiscoveredTool::default()
    }
}

/// Reports whether the server lists exactly the tools in use, as it mostly does.
fn is_as_accepted(listed: &Catalog, before: &ToolServerStatus) -> bool {
    let parts = |tool: &DiscoveredTool| (tool.name.clone(), tool.digest.clone());
    before.gone_tools.is_empty()
        && before.held().next().is_none()
        && before.in_use().map(parts).eq(listed.tools.iter().map(parts))
}

/// Returns the definitions that wait as JSON: as many as fit beside those that are used, the others by their digest alone, as far
/// as that fits. The status has all digests.
fn held_text(waiting: &[HeldEntry<'_>], used: usize) -> Option<String> {
    if waiting.is_empty() {
        return None;
    }
    let most = MAX_HELD.min(MAX_CONFIG_MAP.saturating_sub(used));
    let mut text = "[".to_owned();
    for entry in waiting {
        let has_room = |item: &String| text.len() + item.len() + 2 <= most;
        let without = HeldEntry { definition: None, ..*entry };
        let item = Some(json(entry)).filter(has_room).or_else(|| Some(json(&without)).filter(has_room));
        let Some(item) = item else { continue };
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&item);
    }
    text.push(']');
    Some(text)
}

/// Returns an entry as JSON. It consists of texts, so this cannot fail.
fn json(entry: &HeldEntry<'_>) -> String {
    serde_json::to_string(entry).unwrap_or_default()
}

#[cfg(test)]
mod tests;
