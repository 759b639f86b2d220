//! Holds a request while it is relayed, and what came of it.

use std::sync::Arc;

use http1::RequestHead;
use tokio::time::Instant;

use super::{
    auth::RequestCaller, local_response::LocalResponse, path::Path, peer::Peer, sessions::SessionRef,
    state::GatewayContext,
};

/// One admitted request.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'a> {
    pub(super) head: &'a RequestHead<'a>,
    pub(super) path: &'a Path<'a>,
    pub(super) caller: &'a RequestCaller,
    pub(super) peer: &'a Peer,
    pub(super) arrived: Instant,
    /// The session it belongs to; no other Pod than that of the session can answer it.
    pub(super) session: Option<SessionRef<'a>>,
    /// By what the gateway vouches for the caller, if it has keys.
    pub(super) token: Option<&'a str>,
    pub(super) shared: &'a Arc<GatewayContext>,
}

/// What became of a request.
pub(super) enum RelayOutcome {
    /// It was answered; another one may follow on this connection, or not.
    Served {
        /// Whether another one may follow.
        again: bool,
    },
    /// The client's connection must be aborted.
    Aborted,
    /// Nothing was answered yet: this is to be.
    Refused(LocalResponse),
}
