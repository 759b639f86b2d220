//! The table of kinds: for each its objects and its children. A new kind is a row here.

use std::sync::Arc;

use actions::{kind::ControlledKind, ports::ChildKind};
use cluster::{ObjectMap, cache::KindCaches, custom::Custom};
use crds::{Agent, Flow, FlowSet, HasReferences, MCPServer, Model, PluginConfig, Prompt, RemoteMCPServer, Tool};

/// A kind that the operator runs.
pub trait ReconciledKind: ControlledKind + Custom + HasReferences {
    /// Kinds of children it makes.
    const CHILDREN: &'static [ChildKind] = &[];
    /// Whether it runs Pods.
    const PODS: bool = false;

    /// Its objects.
    fn map(maps: &KindCaches) -> &Arc<ObjectMap<Self>>;
}

/// A kind, its objects, and what it makes, if anything.
macro_rules! controlled {
    ($($kind:ident: $map:ident $(, $constant:ident = $value:expr)*;)+) => {$(
        impl ReconciledKind for $kind {
            $(const $constant: controlled!(type $constant) = $value;)*

            fn map(maps: &KindCaches) -> &Arc<ObjectMap<Self>> {
                &maps.$map
            }
        }
    )+};
    (type CHILDREN) => { &'static [ChildKind] };
    (type PODS) => { bool };
}

controlled! {
    Agent: agents, CHILDREN = ChildKind::ALL, PODS = true;
    Flow: flows, CHILDREN = ChildKind::ALL, PODS = true;
    FlowSet: flow_sets, CHILDREN = ChildKind::ALL, PODS = true;
    MCPServer: mcp_servers, CHILDREN = ChildKind::ALL, PODS = true;
    Tool: tools;
    Model: models;
    PluginConfig: plugin_configs;
    Prompt: prompts;
    RemoteMCPServer: remote_mcp_servers, CHILDREN = &[ChildKind::ConfigMap];
}
