//! One connection of a client: request after request, until one of the two wants no more.

use std::{io, net::IpAddr, pin::Pin, sync::Arc};

use cluster::access::Network;
use http1::{Fields, Framing, KEEP_ALIVE, NoHead, RequestHead, Side};
use tokio::time::{Instant, Sleep, sleep};

use super::{
    answer::Answer,
    clients::Client,
    object::Kind,
    path::{Astray, Path},
    recheck::{PERIOD, while_allowed},
    relay,
    request::{Call, Outcome},
    sessions::Session,
    state::Shared,
};
use crate::{
    answer::unknown,
    peer::{Link, Peer},
};

/// A connection that is aborted when this is dropped before its clean end, whatever ended it.
struct Guarded<'a, S: Link> {
    side: &'a mut Side<S>,
    clean: bool,
}

impl<S: Link> Drop for Guarded<'_, S> {
    fn drop(&mut self) {
        if !self.clean {
            self.side.io.abort();
        }
    }
}

/// The first bytes of a client that speaks HTTP/2 (RFC 9113, section 3.4), as far as they look like a head of HTTP/1.1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// How a connection of HTTP/1.1 ended.
pub(super) enum Ended {
    /// It is closed.
    Closed,
    /// It never was one: its first bytes are those of HTTP/2.
    SpeaksH2,
}

/// Serves a connection of HTTP/1.1 to its end.
pub(super) async fn requests<S: Link>(client: &mut Side<S>, peer: &Peer, shared: &Arc<Shared>) -> Ended {
    let mut client = Guarded { side: client, clean: true };
    let mut fields = Fields::default();
    let mut timer = std::pin::pin!(sleep(KEEP_ALIVE));
    let mut rechecks = Box::pin(sleep(PERIOD));
    let mut first = true;
    while let Some(head) = next_head(client.side, timer.as_mut(), shared).await {
        if std::mem::take(&mut first) && head == PREFACE {
            client.side.incoming.splice(..0, head);
            return Ended::SpeaksH2;
        }
        client.clean = false;
        let timers = (timer.as_mut(), rechecks.as_mut());
        let again = request(client.side, &head, &mut fields, peer, shared, timers).await;
        let Ok(again) = again else { return Ended::Closed };
        client.clean = true;
        if !again {
            break;
        }
    }
    client.side.linger().await;
    Ended::Closed
}

/// The connection must end in a way that cannot be taken for a clean end.
struct Aborted;

/// Waits for a complete head; `None`: there is none to come, and if the client was at fault it was told.
async fn next_head<S: Link>(client: &mut Side<S>, mut timer: Pin<&mut Sleep>, shared: &Shared) -> Option<Vec<u8>> {
    // It is kept: the request may wait for its turn, and may be sent again.
    let keep = |head: &[u8], _: &mut Fields| head.to_vec();
    let next = tokio::select! {
        biased;
        next = client.next_head(timer.as_mut(), keep) => Some(next),
        () = shared.closing.cancelled() => None,
    };
    let next = match next {
        Some(next) => next,
        // One that has begun is served.
        None if !client.incoming.is_empty() => client.next_head(timer.as_mut(), keep).await,
        None => return None,
    };
    let refusal = match next {
        Ok(head) => return Some(head),
        Err(NoHead::Gone) => return None,
        Err(NoHead::Bad(bad)) => Answer::bad(bad),
        Err(NoHead::Late) => Answer::new(408, "timeout", "the head of the request did not come within 10 s"),
    };
    shared.metrics.refused(None, &refusal);
    let _ = tell(client, &refusal, false, true).await;
    None
}

/// Serves one request, whose head is `bytes`. Whether another one may follow.
async fn request<S: Link>(
    client: &mut Side<S>,
    bytes: &[u8],
    fields: &mut Fields,
    peer: &Peer,
    shared: &Arc<Shared>,
    (timer, rechecks): (Pin<&mut Sleep>, Pin<&mut Sleep>),
) -> Result<bool, Aborted> {
    let arrived = Instant::now();
    let head = match RequestHead::read(bytes, fields) {
        Ok(head) => head,
        Err(bad) => return refuse(client, &Answer::bad(bad), None, false, true, shared).await,
    };
    let close = !head.keeps_alive || head.framing != Framing::Length(0) || shared.leaving();
    let path = match Path::read(head.target) {
        Ok(path) => path,
        Err(Astray::Unknown | Astray::Hidden) => {
            return refuse(client, &unknown(), None, head.is_head(), close, shared).await;
        }
    };
    let route = shared.routes.find(path.key);
    let from = || origin(&head, peer, shared);
    let caller = match shared.auth.admit(&head, &path, route.as_deref(), from).await {
        Ok(caller) => caller,
        Err(refusal) => return refuse(client, &refusal, None, head.is_head(), close, shared).await,
    };
    let Some(route) = route else {
        return refuse(client, &shared.unknown(path.key), None, head.is_head(), close, shared).await;
    };
    let head = RequestHead { upgrades: head.upgrades && caller.may_upgrade(), ..head };
    let kind = Some(route.workload.kind);
    let whose = || match &caller.user {
        Some(user) => Client::User(user.clone()),
        None => Client::Address(origin(&head, peer, shared)),
    };
    let Some(_ticket) = shared.clients.begin(whose) else {
        let refusal =
            Answer::new(429, "too-many-requests", "as many requests as allowed are in flight for this client");
        return refuse(client, &refusal, kind, head.is_head(), close, shared).await;
    };
    let session = match Session::read(&head, route.workload.kind) {
        Ok(session) => session,
        Err(refusal) => return refuse(client, &refusal, kind, head.is_head(), close, shared).await,
    };
    let token = shared.keys.get().map(|keys| route.workload.token(caller.user.as_ref(), &keys));
    let token = token.as_deref();
    let call = Call { head: &head, path: &path, caller: &caller, peer, arrived, session, token, shared };
    let ended = {
        let relayed = std::pin::pin!(relay::relay(client, &call, route, timer));
        let is_allowed = || may_go_on(&call);
        while_allowed(relayed, arrived, rechecks, is_allowed).await
    };
    match ended.unwrap_or(Outcome::Aborted) {
        Outcome::Served { again } => Ok(again && !shared.leaving()),
        Outcome::Aborted => Err(Aborted),
        // The body may not have been read, or not to its end.
        Outcome::Refused(refusal) => {
            let close = close || client.overrun;
            refuse(client, &refusal, kind, head.is_head(), close, shared).await
        }
    }
}

/// Whether a request would be let in now, too. That nobody can be asked ends nothing.
async fn may_go_on(call: &Call<'_>) -> bool {
    let Call { head, path, peer, shared, .. } = call;
    let route = shared.routes.find(path.key);
    let admitted = shared.auth.admit(head, path, route.as_deref(), || origin(head, peer, shared)).await;
    let lost = admitted.is_err_and(|refusal| matches!(refusal.status, 401 | 403));
    if lost {
        let target = String::from_utf8_lossy(path.prefix);
        tracing::info!(%target, "a stream is ended: its caller may not call the workload any more");
    }
    !lost
}

/// Where a request comes from: the last address in the chain that is no proxy of ours.
fn origin(head: &RequestHead<'_>, peer: &Peer, shared: &Shared) -> IpAddr {
    if !peer.trusted {
        return peer.address;
    }
    let chain: Vec<_> = head.fields.values(head.bytes, "x-forwarded-for").collect();
    Network::origin(&shared.settings.trusted_proxies, peer.address, Network::hops(&chain))
}

async fn refuse<S: Link>(
    client: &mut Side<S>,
    refusal: &Answer,
    kind: Option<Kind>,
    to_head: bool,
    close: bool,
    shared: &Shared,
) -> Result<bool, Aborted> {
    shared.metrics.refused(kind, refusal);
    Ok(tell(client, refusal, to_head, close).await.is_ok() && !close)
}

async fn tell<S: Link>(client: &mut Side<S>, answer: &Answer, to_head: bool, close: bool) -> io::Result<()> {
    answer.write(to_head, close, &mut client.outgoing);
    client.flush().await
}
