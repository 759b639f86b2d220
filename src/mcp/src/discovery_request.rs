//! Question of a discovery: the server, and the limits of the query.

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::model::ProtocolVersion;
use rmcp::service::ClientLifecycleMode;
use tokio::time::Instant;
use url::Url;

/// Server to query and the parameters of the query.
#[derive(Debug, Clone)]
pub struct DiscoveryRequest {
    /// URL of the server.
    pub url: Url,
    /// Headers of every request.
    pub headers: HashMap<HeaderName, HeaderValue>,
    /// Longest duration of the discovery, for the error that a user reads.
    pub timeout: Duration,
    /// End of that time.
    pub deadline: Instant,
    /// Era that worked the last time.
    pub era: Option<Era>,
    /// Most tools that are taken.
    pub max_tools: usize,
    /// `true` if a session is ended at the server when it is over.
    pub terminates_session: bool,
    /// `true` for a server that speaks HTTP+SSE, the transport of the first revision.
    pub sse: bool,
    /// Longest silence on a stream that only listens.
    pub idle_timeout: Duration,
}

/// Era of the protocol: one of the two ways to talk to a server.
#[doc(alias = "protocol version")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// A handshake opens a session: revisions up to 2025-11-25.
    Initialize,
    /// Each request stands alone: revisions from 2026-07-28 on.
    Discover,
}

impl Era {
    /// Returns the name that users read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Discover => "discover",
        }
    }

    /// Returns the way in which rmcp begins to talk to a server.
    pub(super) fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Initialize => ClientLifecycleMode::Initialize,
            Self::Discover => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
        }
    }
}
