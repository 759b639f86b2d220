//! Size of a server's tools in its status: etcd refuses an object of more than 1.5 MiB.
//!
//! A name stands there twice, because the list of managed fields has it too.

use crds::tool_server::{DiscoveredTool, GoneTool};

/// Most bytes of all names and descriptions of the tools.
pub(super) const MAX_DESCRIPTIONS: usize = 384 * 1024;
/// Most bytes of the tools that are listed and those that are gone, as far as the latter can be left out.
const MAX_ENTRIES: usize = 1280 * 1024;
/// Bytes of a listed tool besides its name and description: two digests, a time, a reason, and the names of the fields.
const OF_LISTED: usize = 400;
/// Bytes of a gone tool besides its name.
const OF_GONE: usize = 160;

/// Returns the bytes that a text takes in storage, as JSON with every character escaped that may be.
pub(super) fn stored_size(text: &str) -> usize {
    let escaped = |c: char| c.is_control() || "<>&\"\\\u{2028}\u{2029}".contains(c);
    text.chars().map(|c| if escaped(c) { 6 } else { c.len_utf8() }).sum()
}

/// Removes the descriptions of the last tools, from where all names and descriptions are too long.
pub(super) fn limit_descriptions(tools: &mut [DiscoveredTool]) {
    let mut described = 0;
    for tool in tools {
        described += stored_size(&tool.name) + stored_size(&tool.description);
        if described > MAX_DESCRIPTIONS {
            tool.description.clear();
        }
    }
}

/// Returns the first of the gone tools, as many as there is room for beside the listed ones: the others wait when they come back.
pub(super) fn limit_gone(gone: impl IntoIterator<Item = GoneTool>, listed: &[DiscoveredTool]) -> Vec<GoneTool> {
    let of_listed = |tool: &DiscoveredTool| 2 * stored_size(&tool.name) + stored_size(&tool.description) + OF_LISTED;
    let mut left = MAX_ENTRIES.saturating_sub(listed.iter().map(of_listed).sum());
    let fits = |tool: &GoneTool| {
        let rest = left.checked_sub(2 * stored_size(&tool.name) + OF_GONE);
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    gone.into_iter().take_while(fits).collect()
}
