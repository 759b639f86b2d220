//! Tool discovery: the port through which servers are queried for their tools, and the storage of the results.
//!
//! A query takes as long as the server likes, so no action waits for it (stale-while-revalidate, [RFC
//! 5861](https://www.rfc-editor.org/rfc/rfc5861#section-3)): the port returns the last known result at once, queries in the
//! background, and enqueues the object when there is a new result and when the next query is due. While a server is down its last
//! result stays: its tools in the status, their definitions in a ConfigMap. What a server changes is used at once, or waits until a
//! person accepts it (`pins`).

mod acceptance;
mod catalog;
mod chosen_tools;
mod definitions;
mod held;
mod persist;
mod pins;
mod publish;
mod server;
mod server_tool;
mod status_size;
mod store;
mod unmatched;
mod unpublish;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crds::tool_server::{ServerHeader, ServerInfo, ServerTls};

pub use catalog::{Catalog, CompactTool};
pub(crate) use chosen_tools::{ChosenState, chosen_state, chosen_tools};
pub use definitions::{Definitions, MAX_TOOLS, McpToolDefinition};
pub use server::ToolServer;
pub(crate) use server_tool::{ToolState, resolve_tool, tool_state};
pub use store::{is_accepting, store_accepted_tools, store_tools};
pub(crate) use unmatched::unmatched_words;
pub use unpublish::Unpublishing;

use machine::ActionError;
use meta::Key;

/// Port through which servers are queried for their tools.
pub trait ToolDiscovery: Send + Sync {
    /// Returns the last result of this target, or `None` until there is one. Starts querying the server if it is not yet queried
    /// as this target, or if the next query is due; in both cases the object is enqueued when the result arrives.
    fn query(&self, target: &DiscoveryTarget, when: Schedule) -> Option<Arc<DiscoveryResult>>;
}

/// Time of the first query of a server of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// At once: an action waits for the result.
    Now,
    /// At a random time within its resync period, so that after a restart the servers with known tools are not all queried at
    /// once.
    OnResync,
}

/// Server to discover and the parameters of the query. Another value is another server: results of the former value no longer
/// count.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveryTarget {
    /// Kind of the object.
    pub kind: &'static str,
    /// Namespace and name of the object.
    pub key: Key,
    /// UID of the object.
    pub uid: String,
    /// URL of the server.
    pub url: String,
    /// Headers of each request. Values in Secrets and ConfigMaps are read for each discovery, and kept nowhere.
    pub headers: Vec<ServerHeader>,
    /// TLS settings by which the certificate of the server is verified.
    pub tls: ServerTls,
    /// `true` for a server that speaks HTTP+SSE, the transport of the protocol's first revision.
    pub sse: bool,
    /// Longest silence on a stream that only listens.
    pub silence: Duration,
    /// `true` if a session is ended at the server when it is over.
    pub terminates: bool,
    /// Longest duration of a discovery.
    pub timeout: Duration,
    /// Resync period: time between two discoveries.
    pub resync: Duration,
    /// Digests of the Secrets and ConfigMaps that are read, or of the serving Pods of an MCPServer.
    pub data: BTreeMap<String, String>,
}

/// Result of a discovery.
pub type DiscoveryResult = Result<Discovered, DiscoveryError>;

/// Discovered tools and identity of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovered {
    /// Its tools, at most [`MAX_TOOLS`].
    pub catalog: Catalog,
    /// Name and version that the server reports, and the protocol revision.
    pub server: ServerInfo,
    /// Era of the protocol: `initialize` or `discover`.
    pub era: String,
    /// Number of changes of its tools in a row, after each of which it is queried with a longer back-off.
    pub changes: u32,
}

/// Number of changes in a row from which the status says that the server keeps changing.
const UNSTABLE_AFTER: u32 = 4;

impl Discovered {
    /// Reports whether the tools of the server keep changing.
    pub fn is_restless(&self) -> bool {
        self.changes >= UNSTABLE_AFTER
    }
}

/// Reason why a server's tools are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryError {
    /// CamelCase reason for the condition, one of [`DISCOVERY_FAILURES`](crds::reason::DISCOVERY_FAILURES).
    pub reason: &'static str,
    /// One sentence, without credentials, times and counters.
    pub message: String,
}

impl From<&DiscoveryError> for ActionError {
    fn from(failed: &DiscoveryError) -> Self {
        Self::terminal(failed.reason, &failed.message)
    }
}
