//! Choice of tools of a server, by globs of their names.

use crate::tool_server;

/// Choice of tools of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolChoice {
    /// Names and globs of the tools to take. Empty: all.
    pub include: Vec<String>,
    /// Names and globs of the tools not to take.
    pub exclude: Vec<String>,
}

impl ToolChoice {
    /// Reports whether the tool of this name is taken.
    pub fn selects(&self, tool: &str) -> bool {
        tool_server::selects(&self.include, &self.exclude, tool)
    }

    /// Returns the tools that are named in full, which must exist.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let literal = |name: &&str| !name.contains(['*', '?']);
        self.include.iter().map(String::as_str).filter(literal).filter(|name| self.selects(name))
    }
}
