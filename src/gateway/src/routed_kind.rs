//! Kinds whose workloads the gateway serves.

use cluster::resource::Resource;

/// Kind that is reachable through the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum RoutedKind {
    Agent,
    Flow,
    FlowSet,
    McpServer,
}

impl RoutedKind {
    /// All routed kinds.
    pub(super) const ALL: [Self; 4] = [Self::Agent, Self::Flow, Self::FlowSet, Self::McpServer];

    /// API resource of the kind.
    pub(super) fn resource(self) -> Resource {
        match self {
            Self::Agent => Resource::of::<crds::Agent>(),
            Self::Flow => Resource::of::<crds::Flow>(),
            Self::FlowSet => Resource::of::<crds::FlowSet>(),
            Self::McpServer => Resource::of::<crds::MCPServer>(),
        }
    }

    /// Returns the name of the kind, such as `Agent`.
    pub(super) fn name(self) -> &'static str {
        self.resource().kind
    }

    /// Returns the plural of the kind, as RBAC rules name it, such as `agents`.
    pub(super) fn plural(self) -> &'static str {
        self.resource().plural
    }

    /// Returns the path segment of the kind, such as `agents`.
    pub(super) fn word(self) -> &'static str {
        if self == Self::McpServer { "mcp" } else { self.plural() }
    }
}
