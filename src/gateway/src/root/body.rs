//! Bounded look at the body of a request before it is relayed. The bytes stay where the relay finds them.

use std::time::Duration;

use http1::{BodyScanner, Connection, RequestHead, Version};
use tokio::time::timeout;

use super::super::{local_response::LocalResponse, peer::ClientStream, state::GatewayContext};

/// Most bytes of a body that are looked at, as much as our runner takes.
pub(super) const MAX_BODY: usize = 1 << 20;
/// Bytes that every request may have buffered. Further ones need a permit, because the caller is not known yet.
const UNCOUNTED: usize = 64 * 1024;
/// Most requests that have more than that buffered at a time.
pub(in super::super) const MAX_LARGE: usize = 64;
/// Longest time in which the bytes must arrive.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// Reads the body until `look`, which gets each run of content, returns a value. Returns the value, or at the end of the
/// body `None`, and the number of bytes of `client.incoming` that were looked at.
pub(super) async fn read<S: ClientStream, T>(
    client: &mut Connection<S>,
    head: &RequestHead<'_>,
    shared: &GatewayContext,
    look: impl FnMut(&[u8]) -> Option<T>,
) -> Result<(Option<T>, usize), BodyError> {
    let late = || LocalResponse::new(408, "timeout", "the body of the request did not come within 30 s");
    timeout(PATIENCE, read_all(client, head, shared, look)).await.map_err(|_| late())?
}

async fn read_all<S: ClientStream, T>(
    client: &mut Connection<S>,
    head: &RequestHead<'_>,
    shared: &GatewayContext,
    mut look: impl FnMut(&[u8]) -> Option<T>,
) -> Result<(Option<T>, usize), BodyError> {
    let waits = head.value("expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
    if waits && client.incoming.is_empty() && head.version == Version::Http11 {
        client.outgoing.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        client.flush().await.map_err(|_| BodyError::Gone)?;
    }
    let mut scanner = BodyScanner::new(head.framing);
    let (mut at, mut permit) = (0, None);
    loop {
        let mut found = None;
        let progress = scanner.advance_with(&client.incoming[at..], |run| {
            if found.is_none() {
                found = look(run);
            }
        });
        let progress = progress.map_err(|(_, bad)| LocalResponse::invalid_message(bad))?;
        at += progress.consumed;
        if found.is_some() || progress.ended {
            return Ok((found, at));
        }
        if at >= MAX_BODY {
            return Err(too_large().into());
        }
        if at >= UNCOUNTED && permit.is_none() {
            permit = Some(shared.large_bodies.try_acquire().map_err(|_| {
                LocalResponse::new(503, "queue-full", "too many requests with large bodies arrive: try again")
            })?);
        }
        if !client.fill().await.unwrap_or(false) {
            return Err(BodyError::Gone);
        }
    }
}

fn too_large() -> LocalResponse {
    LocalResponse::new(
        413,
        "bad-request",
        "nothing was found in the first 1 MiB of the body: put `model` at its beginning, or send less",
    )
}
