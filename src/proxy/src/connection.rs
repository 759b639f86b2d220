//! HTTP/1.1 connection of a client: serves one request after the other until one of the two sides closes.

use std::{
    net::IpAddr,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
};

use daemon::loopback;
use http1::{Connection, Fields, Framing, HeadError, KEEP_ALIVE, RequestHead};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

use super::{
    admin::{AdminRequest, misdirected},
    drain::DrainStage,
    load::InflightSlot,
    local_response::SidecarResponse,
    relay::{UpstreamOutcome, UpstreamRequest, relay},
    state::ProxyContext,
};

/// Serves a connection to its end.
pub(super) async fn serve(io: TcpStream, peer: IpAddr, shared: &ProxyContext) {
    let mut client = Connection::new(io);
    let peer = peer.to_canonical().to_string();
    let busy = AtomicBool::new(false);
    let end = {
        let requests = pin!(requests(&mut client, &peer, &busy, shared));
        shared.drain.run_until_aborted(&busy, requests).await
    };
    match end {
        Some(Ok(())) => client.linger().await,
        // The connection is reset, so that the client does not take the end for a complete response.
        Some(Err(ConnectionAborted)) | None => drop(client.io.set_zero_linger()),
    }
}

/// The connection must be reset, so that the client cannot take the end for a complete response.
struct ConnectionAborted;

/// Serves one request after the other. `busy` is true while one is in flight.
async fn requests(
    client: &mut Connection<TcpStream>,
    peer: &str,
    busy: &AtomicBool,
    shared: &ProxyContext,
) -> Result<(), ConnectionAborted> {
    let mut timer = pin!(sleep(KEEP_ALIVE));
    loop {
        let parse_head = |head: &[u8], fields: &mut Fields| classify(head, fields, peer, shared);
        let mut next = match client.next_head(timer.as_mut(), parse_head).await {
            Ok(next) => next,
            Err(HeadError::Gone) => return Ok(()),
            Err(HeadError::Invalid(bad)) => Disposition::refuse(SidecarResponse::bad_request(bad), shared),
            Err(HeadError::Timeout) => {
                let why = "the head of the request did not come within 10 s";
                Disposition::refuse(SidecarResponse::refusal(408, why, "timeout"), shared)
            }
        };
        // Awaited in place, on borrowed state: the future of a connection is as large as everything that it holds
        // across an await.
        let close = match &mut next {
            Disposition::Respond { answer, to_head, close } => {
                answer.write(*to_head, *close, shared.load.text().as_ref(), &mut client.outgoing);
                *close
            }
            Disposition::Admin { own, to_head, close } => {
                let answer = own.respond(shared).await;
                answer.write(*to_head, *close, shared.load.text().as_ref(), &mut client.outgoing);
                *close
            }
            Disposition::Relay { ask, slot } => {
                busy.store(true, Ordering::Relaxed);
                let outcome = relay(client, ask, slot, shared, timer.as_mut()).await;
                busy.store(false, Ordering::Relaxed);
                match outcome {
                    UpstreamOutcome::Served { again: true } => continue,
                    UpstreamOutcome::Served { again: false } => return Ok(()),
                    UpstreamOutcome::Aborted => return Err(ConnectionAborted),
                    UpstreamOutcome::Refused(answer) => {
                        count(&answer, shared);
                        answer.write(ask.is_head(), true, shared.load.text().as_ref(), &mut client.outgoing);
                        true
                    }
                }
            }
        };
        if client.flush().await.is_err() || close {
            return Ok(());
        }
    }
}

/// Decision about a request.
enum Disposition {
    /// The proxy sends this response itself, usually a refusal.
    Respond { answer: SidecarResponse, to_head: bool, close: bool },
    /// The request is for the proxy itself.
    Admin { own: AdminRequest, to_head: bool, close: bool },
    /// The request was admitted, with a slot, and goes to the workload.
    Relay { ask: UpstreamRequest, slot: InflightSlot },
}

impl Disposition {
    /// Refuses a request that cannot be parsed, and closes the connection.
    fn refuse(answer: SidecarResponse, shared: &ProxyContext) -> Self {
        count(&answer, shared);
        Self::Respond { answer, to_head: false, close: true }
    }
}

/// Classifies a request by its head, and admits it. Only the rewritten head is kept.
fn classify(head: &[u8], fields: &mut Fields, peer: &str, shared: &ProxyContext) -> Disposition {
    let head = match RequestHead::read(head, fields) {
        Ok(head) => head,
        Err(bad) => return Disposition::refuse(SidecarResponse::bad_request(bad), shared),
    };
    let to_head = head.is_head();
    let close = !head.keeps_alive || head.framing != Framing::Length(0);
    if shared.config.local && !loopback::is_local(|name| head.fields.values(head.bytes, name)) {
        let answer = SidecarResponse::refusal(403, loopback::REFUSAL, "foreign-origin");
        count(&answer, shared);
        return Disposition::Respond { answer, to_head, close };
    }
    match AdminRequest::parse(&head, peer, shared) {
        Some(Ok(own)) => return Disposition::Admin { own, to_head, close },
        Some(Err(answer)) => return Disposition::Respond { answer, to_head, close },
        None => {}
    }
    if head.value("x-recif-workload").is_some_and(|named| !shared.config.is_workload(named)) {
        let answer = misdirected();
        count(&answer, shared);
        return Disposition::Respond { answer, to_head, close };
    }
    let (now, stage) = (Instant::now(), shared.drain.stage());
    let user = match shared.callers.identify(&head, now) {
        Ok(user) => user,
        Err(answer) => {
            count(&answer, shared);
            return Disposition::Respond { answer, to_head, close };
        }
    };
    let answer = match stage {
        DrainStage::Draining | DrainStage::Restarting => {
            SidecarResponse::refusal(503, "the workload is shutting down", "draining")
        }
        DrainStage::Serving | DrainStage::LameDuck => {
            match shared.load.acquire(head.value("x-recif-via").is_some(), now) {
                Some(slot) => {
                    return Disposition::Relay { ask: UpstreamRequest::new(&head, peer, &user, now, shared), slot };
                }
                None => SidecarResponse::refusal(503, "as many requests as allowed are in flight", "over-capacity"),
            }
        }
    };
    count(&answer, shared);
    Disposition::Respond { answer, to_head, close: close || stage != DrainStage::Serving }
}

fn count(refusal: &SidecarResponse, shared: &ProxyContext) {
    shared.metrics.rejected(refusal.status, refusal.reason.unwrap_or_default());
}
