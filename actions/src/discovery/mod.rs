//! What servers of tools tell of themselves: the port through which they are asked, and what is kept of their answers.
//!
//! Asking takes as long as the server likes, so no step waits for it: the port answers at once with what it knows, asks on its
//! own time, and wakes the object when there is news and when it is time to ask again. What was last told stays where it is
//! while a server is down: its tools in the status, their definitions in a ConfigMap.

mod catalog;
mod definitions;
mod persist;
mod publish;
mod server;
mod server_tool;
mod store;
mod unpublish;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crds::tool_server::{ServerHeader, ServerInfo, ServerTls};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use catalog::{Catalog, CompactTool};
pub use definitions::Definitions;
pub use persist::DISCOVERED;
pub use publish::PUBLISHED;
pub use server::ToolServer;
pub(crate) use server_tool::{ToolState, resolve_tool, tool_state};
pub use store::store_tools;
pub use unpublish::Unpublishing;

use machine::ActionError;
use meta::Key;

/// The most tools that are taken from a server.
pub const MAX_TOOLS: usize = 1000;

/// Where servers are asked for their tools.
pub trait ToolDiscovery: Send + Sync {
    /// What the server last said, or `None` as long as it has not answered. Asks it if it was not asked yet as this target, or
    /// if it is time for another look; in both cases the object is woken when the answer is there.
    fn query(&self, target: &DiscoveryTarget, when: Schedule) -> Option<Arc<DiscoveryResult>>;
}

/// When a server of which nothing is known is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// At once: somebody waits.
    Now,
    /// At some time within its resync, so that those of which all was known before a restart are not asked all at once.
    OnResync,
}

/// A server, and how it is asked. Another value is another server: what it said before counts no more.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveryTarget {
    /// Kind of the object.
    pub kind: &'static str,
    /// The object.
    pub key: Key,
    /// Its uid.
    pub uid: String,
    /// Where the server is.
    pub url: String,
    /// What is sent with each request. Values in Secrets and ConfigMaps are read for each discovery, and kept nowhere.
    pub headers: Vec<ServerHeader>,
    /// How it proves who it is.
    pub tls: ServerTls,
    /// Whether it speaks the transport of the protocol's first revision, over a stream of events.
    pub sse: bool,
    /// How long a stream that only listens may be silent.
    pub silence: Duration,
    /// Whether a session is ended at the server when it is over.
    pub terminates: bool,
    /// The longest that a discovery takes.
    pub timeout: Duration,
    /// How often it is asked.
    pub resync: Duration,
    /// Digests of the Secrets and ConfigMaps that are read.
    pub data: BTreeMap<String, String>,
}

/// How a discovery ended.
pub type DiscoveryResult = Result<Discovered, DiscoveryError>;

/// What a server told.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovered {
    /// Its tools, at most [`MOST_TOOLS`].
    pub catalog: Catalog,
    /// What it says that it is.
    pub server: ServerInfo,
    /// `initialize` or `discover`.
    pub era: String,
    /// Whether its tools keep changing, so that it is asked ever more rarely.
    pub restless: bool,
}

/// A tool as its server defines it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpToolDefinition {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of what it takes.
    pub input_schema: Value,
    /// JSON Schema of what it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// Why a server's tools are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryError {
    /// A CamelCase word for the condition, of [`REASONS`].
    pub reason: &'static str,
    /// One sentence, without credentials, times and counters.
    pub message: String,
}

impl From<&DiscoveryError> for ActionError {
    fn from(failed: &DiscoveryError) -> Self {
        Self::terminal(failed.reason, &failed.message)
    }
}

/// Failures of discoveries. The port asks again by itself.
pub const REASONS: &[&str] = &[
    "ServerUnreachable",
    "ServerTimeout",
    "ServerRefused",
    "InvalidServerAnswer",
    "AddressDenied",
    "InvalidHeader",
    "InvalidCertificate",
];
