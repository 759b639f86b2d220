//! One connection of a client: request after request, until one of the two wants no more.

use std::{
    net::IpAddr,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
};

use http1::{Fields, Framing, KEEP_ALIVE, NoHead, RequestHead, Side};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

use super::{
    admin::{Own, misdirected},
    life::Stage,
    load::Slot,
    local_response::Answer,
    relay::{Ask, Outcome, relay},
    state::Shared,
};

/// Serves a connection to its end.
pub(super) async fn serve(io: TcpStream, peer: IpAddr, shared: &Shared) {
    let mut client = Side::new(io);
    let peer = peer.to_canonical().to_string();
    let busy = AtomicBool::new(false);
    let end = {
        let requests = pin!(requests(&mut client, &peer, &busy, shared));
        shared.life.unless_aborted(&busy, requests).await
    };
    match end {
        Some(Ok(())) => client.linger().await,
        // The client sees that something is missing, not a clean end.
        Some(Err(Aborted)) | None => drop(client.io.set_zero_linger()),
    }
}

/// The connection must end in a way that cannot be taken for a clean end.
struct Aborted;

/// Serves one request after the other. `busy` says whether one is in flight.
async fn requests(client: &mut Side<TcpStream>, peer: &str, busy: &AtomicBool, shared: &Shared) -> Result<(), Aborted> {
    let mut timer = pin!(sleep(KEEP_ALIVE));
    loop {
        let judge = |head: &[u8], fields: &mut Fields| judge(head, fields, peer, shared);
        let mut next = match client.next_head(timer.as_mut(), judge).await {
            Ok(next) => next,
            Err(NoHead::Gone) => return Ok(()),
            Err(NoHead::Bad(bad)) => Next::refuse(Answer::bad_request(bad), shared),
            Err(NoHead::Late) => {
                let why = "the head of the request did not come within 10 s";
                Next::refuse(Answer::refusal(408, why, "timeout"), shared)
            }
        };
        // What is awaited works on what is here: a connection is as large as what it may hold at a time.
        let close = match &mut next {
            Next::Tell { answer, to_head, close } => {
                answer.write(*to_head, *close, shared.load.text().as_ref(), &mut client.outgoing);
                *close
            }
            Next::Own { own, to_head, close } => {
                let answer = own.answer(shared).await;
                answer.write(*to_head, *close, shared.load.text().as_ref(), &mut client.outgoing);
                *close
            }
            Next::Relay { ask, slot } => {
                busy.store(true, Ordering::Relaxed);
                let outcome = relay(client, ask, slot, shared, timer.as_mut()).await;
                busy.store(false, Ordering::Relaxed);
                match outcome {
                    Outcome::Served { again: true } => continue,
                    Outcome::Served { again: false } => return Ok(()),
                    Outcome::Aborted => return Err(Aborted),
                    Outcome::Refused(answer) => {
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

/// What is to be done with a request.
enum Next {
    /// It is refused.
    Tell { answer: Answer, to_head: bool, close: bool },
    /// It is for the proxy.
    Own { own: Own, to_head: bool, close: bool },
    /// It is for the workload.
    Relay { ask: Ask, slot: Slot },
}

impl Next {
    /// Refuses what is no request.
    fn refuse(answer: Answer, shared: &Shared) -> Self {
        count(&answer, shared);
        Self::Tell { answer, to_head: false, close: true }
    }
}

/// Judges the head of a request. Nothing of it is kept but what is passed on.
fn judge(head: &[u8], fields: &mut Fields, peer: &str, shared: &Shared) -> Next {
    let head = match RequestHead::read(head, fields) {
        Ok(head) => head,
        Err(bad) => return Next::refuse(Answer::bad_request(bad), shared),
    };
    let to_head = head.is_head();
    let close = !head.keeps_alive || head.framing != Framing::Length(0);
    match Own::of(&head, peer, shared) {
        Some(Ok(own)) => return Next::Own { own, to_head, close },
        Some(Err(answer)) => return Next::Tell { answer, to_head, close },
        None => {}
    }
    if head.value("x-recif-workload").is_some_and(|named| !shared.config.is_workload(named)) {
        let answer = misdirected();
        count(&answer, shared);
        return Next::Tell { answer, to_head, close };
    }
    let (now, stage) = (Instant::now(), shared.life.stage());
    let user = match shared.callers.of(&head, now) {
        Ok(user) => user,
        Err(answer) => {
            count(&answer, shared);
            return Next::Tell { answer, to_head, close };
        }
    };
    let answer = match stage {
        Stage::Draining | Stage::Restarting => Answer::refusal(503, "the workload is shutting down", "draining"),
        Stage::Serving | Stage::LameDuck => match shared.load.take(head.value("x-recif-via").is_some(), now) {
            Some(slot) => return Next::Relay { ask: Ask::new(&head, peer, &user, now, shared), slot },
            None => Answer::refusal(503, "as many requests as allowed are in flight", "over-capacity"),
        },
    };
    count(&answer, shared);
    Next::Tell { answer, to_head, close: close || stage != Stage::Serving }
}

fn count(refusal: &Answer, shared: &Shared) {
    shared.metrics.rejected(refusal.status, refusal.reason.unwrap_or_default());
}
