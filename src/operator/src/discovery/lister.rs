//! Says how a server is asked for its tools: the port of the loop towards it.

use std::{fmt, time::Duration};

use actions::discovery::{Discovered, DiscoveryError, DiscoveryTarget};
use async_trait::async_trait;
use mcp::Era;

/// Asks servers.
#[async_trait]
pub(super) trait ToolLister: Send + Sync {
    /// One discovery; `era` is what worked the last time.
    async fn list_tools(&self, target: &DiscoveryTarget, era: Option<Era>) -> Result<ToolListing, ListError>;
}

/// What a server said.
#[derive(Debug)]
pub(super) struct ToolListing {
    pub(super) discovered: Discovered,
    /// How it was talked to.
    pub(super) era: Era,
    /// How long it says that this holds.
    pub(super) ttl: Duration,
    /// The way in which it tells of changes, if it does.
    pub(super) changes: Option<Box<dyn ChangeStream>>,
}

/// A server that tells when its tools change.
#[async_trait]
pub(super) trait ChangeStream: fmt::Debug + Send {
    /// Returns when they did.
    async fn next(&mut self);
    /// It is not listened to any more.
    async fn close(self: Box<Self>);
}

/// Why nothing is known of a server.
#[derive(Debug)]
pub(super) enum ListError {
    /// It does not tell its tools.
    Failed(DiscoveryError),
    /// It could not be asked, and that is not its own fault: what it last said stands.
    Unready(DiscoveryError),
}
