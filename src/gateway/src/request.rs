//! Holds a request while it is relayed, and what came of it.

use std::sync::Arc;

use http1::RequestHead;
use tokio::time::Instant;

use super::{answer::Answer, auth::Caller, path::Path, peer::Peer, sessions::Session, state::Shared};

/// One admitted request.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) head: &'a RequestHead<'a>,
    pub(super) path: &'a Path<'a>,
    pub(super) caller: &'a Caller,
    pub(super) peer: &'a Peer,
    pub(super) arrived: Instant,
    /// The session it belongs to; no other Pod than that of the session can answer it.
    pub(super) session: Option<Session<'a>>,
    /// By what the gateway vouches for the caller, if it has keys.
    pub(super) token: Option<&'a str>,
    pub(super) shared: &'a Arc<Shared>,
}

/// What became of a request.
pub(super) enum Outcome {
    /// It was answered; another one may follow on this connection, or not.
    Served {
        /// Whether another one may follow.
        again: bool,
    },
    /// The client's connection must be aborted.
    Aborted,
    /// Nothing was answered yet: this is to be.
    Refused(Answer),
}
