//! Digest by which a Tool names the only definition with which it may be used (`mcpServerRef.digest`).

use std::borrow::Cow;

use crds::{
    Tool, ToolSpec,
    tool_pins::{digest_hex, shown_digest},
};

use super::{server_tool_state, subject};
use crate::{discovery::ToolState, ports::CacheReader};

/// Returns why the Tool may not be used with the definition that is accepted of its server, if that is another one than it
/// names.
pub(super) fn mismatch(cache: &dyn CacheReader, tool: &Tool) -> Option<String> {
    let named = tool.spec.mcp_server_ref.as_ref()?.digest.as_deref()?;
    let (server, ToolState::Known { definition, .. }) = server_tool_state(tool, cache)? else { return None };
    if digest_hex(named) == Some(definition.as_str()) {
        return None;
    }
    let (subject, accepted) = (subject(&server), shown_digest(&definition));
    Some(format!("{subject} has the definition {accepted}, and mcpServerRef.digest names {named}"))
}

/// Returns the spec without the digest: to name the definition that is in use changes nothing for the users of the Tool.
pub(super) fn without_digest(spec: &ToolSpec) -> Cow<'_, ToolSpec> {
    if spec.mcp_server_ref.as_ref().is_none_or(|server| server.digest.is_none()) {
        return Cow::Borrowed(spec);
    }
    let mut spec = spec.clone();
    if let Some(server) = &mut spec.mcp_server_ref {
        server.digest = None;
    }
    Cow::Owned(spec)
}
