//! Port of the polling loop to an MCP server.

use std::{fmt, time::Duration};

use actions::discovery::{Discovered, DiscoveryError, DiscoveryTarget};
use async_trait::async_trait;
use mcp::Era;

/// Port that lists the tools of a server.
#[async_trait]
pub(super) trait ToolLister: Send + Sync {
    /// Queries a server once; `era` is the protocol era that worked the last time.
    async fn list_tools(&self, target: &DiscoveryTarget, era: Option<Era>) -> Result<ToolListing, ListError>;
}

/// Result of a query.
#[derive(Debug)]
pub(super) struct ToolListing {
    pub(super) discovered: Discovered,
    /// Protocol era of the exchange.
    pub(super) era: Era,
    /// Time for which the server says that the result holds.
    pub(super) ttl: Duration,
    /// Stream of the server's change notifications, if it offers one.
    pub(super) changes: Option<Box<dyn ChangeStream>>,
}

/// Stream of the change notifications of a server.
#[async_trait]
pub(super) trait ChangeStream: fmt::Debug + Send {
    /// Waits for the next notification.
    async fn next(&mut self);
    /// Ends the stream.
    async fn close(self: Box<Self>);
}

/// Reason for a missing result.
#[derive(Debug)]
pub(super) enum ListError {
    /// The server does not list its tools.
    Failed(DiscoveryError),
    /// The server could not be queried, through no fault of its own: its last result stands.
    Unready(DiscoveryError),
}
