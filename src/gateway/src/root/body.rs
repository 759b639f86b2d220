//! Bounded look at the body of a request before it is relayed. The bytes stay where the relay finds them.

use std::{net::IpAddr, time::Duration};

use http1::{BodyScanner, Connection, RequestHead, Version};
use tokio::time::timeout;

use super::{
    super::{auth::RootCaller, local_response::LocalResponse, peer::ClientStream, state::GatewayContext},
    limits::LargeBody,
};

/// Most bytes of a body that are looked at, as much as our runner takes.
pub(super) const MAX_BODY: usize = 1 << 20;
/// Bytes that every request may have buffered. Further ones need a known caller, or an agent that is open to all, and a
/// permit, which the request holds until its answer begins.
const UNCOUNTED: usize = 64 * 1024;
/// Longest time in which the bytes must arrive.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Reasons for which a body was not read.
pub(super) enum BodyError {
    /// The request is refused.
    Refused(LocalResponse),
    /// The client closed its connection.
    Gone,
}

impl From<LocalResponse> for BodyError {
    fn from(refusal: LocalResponse) -> Self {
        Self::Refused(refusal)
    }
}

/// Body that was looked at.
pub(super) struct SeenBody<'a, T> {
    /// Value that was looked for; `None` at the end of the body.
    pub(super) found: Option<T>,
    /// Number of bytes of `client.incoming` that were looked at.
    pub(super) length: usize,
    /// Permit for these bytes, if they are many.
    pub(super) large: Option<LargeBody<'a>>,
}

/// Sender of the body that is read.
#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) head: &'a RequestHead<'a>,
    /// Client's address.
    pub(super) origin: IpAddr,
    /// Path of the agents that the request is for. If it is open to all for one of them, no token is needed.
    pub(super) rest: &'a [u8],
}

/// Reads the body until `look`, which gets each run of content, returns a value.
pub(super) async fn read<'a, S: ClientStream, T>(
    client: &mut Connection<S>,
    sender: Sender<'_>,
    shared: &'a GatewayContext,
    look: impl FnMut(&[u8]) -> Option<T>,
) -> Result<SeenBody<'a, T>, BodyError> {
    let late = || LocalResponse::new(408, "timeout", "the body of the request did not come within 30 s");
    timeout(PATIENCE, read_all(client, sender, shared, look)).await.map_err(|_| late())?
}

async fn read_all<'a, S: ClientStream, T>(
    client: &mut Connection<S>,
    sender: Sender<'_>,
    shared: &'a GatewayContext,
    mut look: impl FnMut(&[u8]) -> Option<T>,
) -> Result<SeenBody<'a, T>, BodyError> {
    let head = sender.head;
    let waits = head.value("expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
    if waits && client.incoming.is_empty() && head.version == Version::Http11 {
        client.outgoing.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        client.flush().await.map_err(|_| BodyError::Gone)?;
    }
    let mut scanner = BodyScanner::new(head.framing);
    let (mut at, mut large) = (0, None);
    loop {
        let mut found = None;
        let end = client.incoming.len().min(MAX_BODY);
        let progress = scanner.advance_with(&client.incoming[at..end], |run| {
            if found.is_none() {
                found = look(run);
            }
        });
        let progress = progress.map_err(|(_, bad)| LocalResponse::invalid_message(bad))?;
        at += progress.consumed;
        if found.is_some() || progress.ended {
            return Ok(SeenBody { found, length: at, large });
        }
        if at >= MAX_BODY {
            return Err(too_large().into());
        }
        if at >= UNCOUNTED && large.is_none() {
            large = Some(admit_large(sender, shared).await?);
        }
        if !client.fill().await.unwrap_or(false) {
            return Err(BodyError::Gone);
        }
    }
}

/// Admits a body that needs a permit.
async fn admit_large<'a>(sender: Sender<'_>, shared: &'a GatewayContext) -> Result<LargeBody<'a>, LocalResponse> {
    let Sender { head, origin, rest } = sender;
    let caller = shared.auth.identify(head, origin).await?;
    if let RootCaller::Anonymous(refusal) = &caller
        && !shared.routes.any_agent(|route| caller.may_see(route, rest))
    {
        return Err(refusal.clone());
    }
    shared.root.large_body(caller.client(origin))
}

fn too_large() -> LocalResponse {
    LocalResponse::new(
        413,
        "bad-request",
        "nothing was found in the first 1 MiB of the body: put `model` at its beginning, or send less",
    )
}
