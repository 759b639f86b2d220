//! Choice of tools of a server, by globs of their names.

use crate::tool_server::{DiscoveredTool, matches_glob, selects};

/// Choice of tools of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolChoice {
    /// Names and globs of the tools to take. Empty: all.
    pub include: Vec<String>,
    /// Names and globs of the tools not to take.
    pub exclude: Vec<String>,
    /// Names and globs of the tools whose calls wait for a person. Empty: those of all tools or of none.
    pub asking: Vec<String>,
    /// Prefix of the names by which a model knows the tools; empty without `asking`.
    pub prefix: String,
}

/// Patterns of `asking` that match no tool of the server: no call waits because of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unmatched<'a> {
    /// The patterns, in their order.
    pub patterns: Vec<&'a str>,
    /// Set if one of them is meant for a tool: it names one in full, or matches one as a model knows it.
    pub is_mistake: bool,
}

impl ToolChoice {
    /// Reports whether the tool of this name is taken.
    pub fn selects(&self, tool: &str) -> bool {
        selects(&self.include, &self.exclude, tool)
    }

    /// Returns the tools that are named in full, which must exist.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let taken = self.include.iter().map(String::as_str).filter(|name| is_literal(name));
        taken.filter(|name| self.selects(name))
    }

    /// Returns the patterns of `asking` that match none of these tools: all that the server lists, also those that are not taken.
    pub fn unmatched(&self, listed: &[DiscoveredTool]) -> Unmatched<'_> {
        let is_unmatched = |pattern: &&str| !listed.iter().any(|tool| matches_glob(pattern, &tool.name));
        let patterns: Vec<&str> = self.asking.iter().map(String::as_str).filter(is_unmatched).collect();
        let has_prefix =
            |pattern: &str| listed.iter().any(|tool| matches_glob(pattern, &format!("{}{}", self.prefix, tool.name)));
        let is_mistake = patterns.iter().any(|pattern| is_literal(pattern) || has_prefix(pattern));
        Unmatched { patterns, is_mistake }
    }
}

/// Reports whether a pattern has no wildcard, so that it names one tool.
fn is_literal(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}
