//! Context of a request while it is relayed, and its outcome.

use std::{net::IpAddr, sync::Arc};

use cluster::access::Network;
use http1::RequestHead;
use tokio::time::Instant;

use super::{
    auth::RequestCaller, clients::ClientId, local_response::LocalResponse, path::Path, peer::Peer, record::RecordGuard,
    sessions::SessionRef, state::GatewayContext,
};

/// Admitted request.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'a> {
    pub(super) head: &'a RequestHead<'a>,
    pub(super) path: &'a Path<'a>,
    pub(super) caller: &'a RequestCaller,
    pub(super) peer: &'a Peer,
    pub(super) arrived: Instant,
    /// MCP session of the request; only the Pod that holds the session can serve it.
    pub(super) session: Option<SessionRef<'a>>,
    /// Signed token by which the gateway vouches for the caller; `None` without keys.
    pub(super) token: Option<&'a str>,
    /// Called when the answer begins: nothing is held any more of a body that was read before it was relayed.
    pub(super) answered: &'a (dyn Fn() + Sync),
    /// Record for audit and trace.
    pub(super) record: &'a RecordGuard<'a>,
    pub(super) shared: &'a Arc<GatewayContext>,
}

impl RequestContext<'_> {
    /// Returns who the client is, for what is counted by client.
    pub(super) fn client(&self) -> ClientId {
        client_id(self.caller, self.head, self.peer, self.shared)
    }
}

/// Returns who the client is, for what is counted by client.
pub(super) fn client_id(
    caller: &RequestCaller,
    head: &RequestHead<'_>,
    peer: &Peer,
    shared: &GatewayContext,
) -> ClientId {
    match &caller.user {
        Some(user) => ClientId::User(user.clone()),
        None => ClientId::Address(origin(head, peer, shared)),
    }
}

/// Returns the client's address: the last one in the chain of `X-Forwarded-For` that is no trusted proxy.
pub(super) fn origin(head: &RequestHead<'_>, peer: &Peer, shared: &GatewayContext) -> IpAddr {
    if !peer.trusted {
        return peer.address;
    }
    let chain: Vec<_> = head.fields.values(head.bytes, "x-forwarded-for").collect();
    Network::client_address(&shared.settings.trusted_proxies, peer.address, Network::hops(&chain))
}

/// Outcome of a relayed request.
pub(super) enum RelayOutcome {
    /// A response was sent.
    Served {
        /// Set if another request may follow on the client's connection.
        again: bool,
    },
    /// The client's connection must be aborted.
    Aborted,
    /// Nothing was sent to the client yet: it gets this refusal.
    Refused(LocalResponse),
}
