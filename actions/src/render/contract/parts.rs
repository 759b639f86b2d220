//! Parts of a flow, from which its files are rendered.

use std::{collections::BTreeMap, sync::Arc};

use crds::{ModelSpec, PluginConfigSpec, Tool};

use crate::server_tools::LeftOut;

/// Flow with everything it refers to. Missing references are left out.
#[derive(Debug, Clone)]
pub struct FlowParts {
    /// Name of the flow.
    pub name: String,
    /// Name and text of each prompt, in the order of the spec: the first one is the entry prompt.
    pub prompts: Vec<(String, String)>,
    /// Name and content of each tool, in the order of the spec.
    pub tools: Vec<(String, FlowTool)>,
    /// Model; `None` only if no Pod will read the result.
    pub model: Option<FlowModel>,
    /// Tools that it goes without; `None` without `toolServers` and with every other tool.
    pub left_out: Option<LeftOut>,
}

/// Tool of a flow.
#[derive(Debug, Clone)]
pub enum FlowTool {
    /// An enabled Tool.
    Object {
        /// The Tool.
        tool: Arc<Tool>,
        /// Address of the flow or agent that it calls.
        url: Option<String>,
        /// Variable to SHA-256 (hex) of the header's value.
        header_values: BTreeMap<String, String>,
    },
    /// A builtin, for which there is no Tool.
    Builtin,
}

/// Model of a flow, and how it is reached.
#[derive(Debug, Clone)]
pub struct FlowModel {
    /// Model.
    pub model: ModelSpec,
    /// Provider of the model.
    pub plugin: PluginConfigSpec,
    /// Credentials of the provider, if it has any.
    pub credentials: Option<Credentials>,
    /// Variable of a header or of CA certificates of its provider to SHA-256 (hex) of the value.
    pub header_values: BTreeMap<String, String>,
    /// Models that answer, in this order, where this one cannot; they have no fallbacks themselves.
    pub fallbacks: Vec<FlowModel>,
}

/// Secret with credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Name of the Secret.
    pub secret: String,
    /// Key to SHA-256 (hex) of its value, for the keys that are used.
    pub values: BTreeMap<String, String>,
}

/// Placement of a flow: in Pods of its own, or in those of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::render) enum FlowPlacement {
    Alone,
    InSet,
}
