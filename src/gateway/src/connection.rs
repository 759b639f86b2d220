//! HTTP/1.1 connection of a client: serves one request after the other until one of the two sides closes.

use std::{io, pin::Pin, sync::Arc, time::Duration};

use http1::{Connection, Fields, Framing, HeadError, KEEP_ALIVE, RequestHead};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::{
    clients::ClientId,
    limits::{LimitTime, form_at},
    local_response::{ErrorForm, LocalResponse},
    meter::Meter,
    path::{Path, RouteError},
    recheck::{RECHECK_INTERVAL, while_allowed},
    record::RecordGuard,
    relay,
    request::{RelayOutcome, RequestContext, client_id, origin},
    root::{self, ChosenAgent, HeldBody, RootOutcome},
    routes::Route,
    sessions::SessionRef,
    state::GatewayContext,
    traces::TracedRequest,
};
use crate::{
    local_response::{too_many_requests, unknown_workload},
    peer::{ClientStream, Peer},
};

/// Guard that aborts the connection on drop unless it ended cleanly.
struct AbortOnDrop<'a, S: ClientStream> {
    side: &'a mut Connection<S>,
    clean: bool,
}

impl<S: ClientStream> Drop for AbortOnDrop<'_, S> {
    fn drop(&mut self) {
        if !self.clean {
            self.side.io.abort();
        }
    }
}

/// Time for which a connection without a request stays open once the gateway closes: the client may just have sent one,
/// which would be lost.
const LAST_REQUEST: Duration = Duration::from_secs(1);

/// Connection preface of HTTP/2 (RFC 9113, section 3.4), as far as it looks like a head of HTTP/1.1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// Outcome of a connection that began as HTTP/1.1.
pub(super) enum ConnectionEnd {
    /// The connection is finished.
    Closed,
    /// The client speaks HTTP/2: the first bytes are its connection preface. They are back in `incoming`.
    SpeaksH2,
}

/// Serves an HTTP/1.1 connection to its end.
pub(super) async fn requests<S: ClientStream>(
    client: &mut Connection<S>,
    peer: &Peer,
    shared: &Arc<GatewayContext>,
) -> ConnectionEnd {
    let mut client = AbortOnDrop { side: client, clean: true };
    let mut fields = Fields::default();
    let mut timer = std::pin::pin!(sleep(KEEP_ALIVE));
    let mut rechecks = Box::pin(sleep(RECHECK_INTERVAL));
    let mut first = true;
    while let Some(head) = next_head(client.side, timer.as_mut(), shared).await {
        if std::mem::take(&mut first) && head == PREFACE {
            client.side.incoming.splice(..0, head);
            return ConnectionEnd::SpeaksH2;
        }
        client.clean = false;
        let timers = (timer.as_mut(), rechecks.as_mut());
        let again = request(client.side, &head, &mut fields, peer, shared, timers).await;
        let Ok(again) = again else { return ConnectionEnd::Closed };
        client.clean = true;
        if !again {
            break;
        }
    }
    client.side.linger().await;
    ConnectionEnd::Closed
}

/// The connection must be reset, so that the client cannot take the end for a complete response.
struct AbortConnection;

/// Waits for a complete head. Returns `None` if none follows; an invalid or slow head was refused before that.
async fn next_head<S: ClientStream>(
    client: &mut Connection<S>,
    mut timer: Pin<&mut Sleep>,
    shared: &GatewayContext,
) -> Option<Vec<u8>> {
    // The head is copied: the request may be queued, and may be sent again.
    let keep = |head: &[u8], _: &mut Fields| head.to_vec();
    let next = tokio::select! {
        biased;
        next = client.next_head(timer.as_mut(), keep) => Some(next),
        () = shared.closing.cancelled() => None,
    };
    let next = match next {
        Some(next) => next,
        // Boxed, because the future of every connection is as large as its largest state.
        None => Box::pin(last_head(client, timer)).await?,
    };
    let refusal = match next {
        Ok(head) => return Some(head),
        Err(HeadError::Gone) => return None,
        Err(HeadError::Invalid(bad)) => LocalResponse::invalid_message(bad),
        Err(HeadError::Timeout) => {
            LocalResponse::new(408, "timeout", "the head of the request did not come within 10 s")
        }
    };
    shared.metrics.refused(None, &refusal);
    let _ = respond(client, Refusal::of(&refusal), false, true).await;
    None
}

/// Waits for the head of a last request while the gateway closes. Returns `None` if none begins in time; one that has begun
/// is still served.
async fn last_head<S: ClientStream>(
    client: &mut Connection<S>,
    mut timer: Pin<&mut Sleep>,
) -> Option<Result<Vec<u8>, HeadError>> {
    let keep = |head: &[u8], _: &mut Fields| head.to_vec();
    match timeout(LAST_REQUEST, client.next_head(timer.as_mut(), keep)).await {
        Ok(next) => Some(next),
        Err(_) if client.incoming.is_empty() => None,
        Err(_) => Some(client.next_head(timer, keep).await),
    }
}

/// Serves one request, whose head is `bytes`. Returns true if another request may follow on the connection.
async fn request<S: ClientStream>(
    client: &mut Connection<S>,
    bytes: &[u8],
    fields: &mut Fields,
    peer: &Peer,
    shared: &Arc<GatewayContext>,
    (timer, rechecks): (Pin<&mut Sleep>, Pin<&mut Sleep>),
) -> Result<bool, AbortConnection> {
    let mut arrived = Instant::now();
    let mut head = match RequestHead::read(bytes, fields) {
        Ok(head) => head,
        Err(bad) => {
            let refusal = LocalResponse::invalid_message(bad);
            return refuse(client, Refusal::of(&refusal), false, true, shared).await;
        }
    };
    let close = !head.keeps_alive || head.framing != Framing::Length(0) || shared.leaving();
    let chosen;
    let mut held = HeldBody::default();
    let (path, form) = match Path::read(head.target) {
        Ok(path) => (path, ErrorForm::Recif),
        Err(RouteError::Unknown) if root::is_root(head.target) => {
            // Boxed, so that the connections that ask for no path at the root have no room for it.
            match Box::pin(at_root(client, &head, peer, close, shared)).await {
                Ok((agent, body)) => (chosen, held) = (agent, body),
                Err(ended) => return ended,
            }
            // The wait for a Pod begins now, however slowly the body came.
            arrived = Instant::now();
            (chosen.path(head.target), ErrorForm::OpenAi)
        }
        Err(RouteError::Unknown | RouteError::Hidden) => {
            return refuse(client, Refusal::of(&unknown_workload()), head.is_head(), close, shared).await;
        }
    };
    let route = shared.routes.find(path.key);
    let meter = route.as_ref().map(|route| route.meter.clone());
    let meter = meter.as_deref();
    // Closures stand where they are used: one with a name would take room in the future of every open stream.
    let workload = route.as_deref().map(|route| &route.workload);
    let mut record = shared.log.begin(workload, &head, arrived, || origin(&head, peer, shared));
    let caller = match shared.auth.authorize(&head, &path, route.as_deref(), || origin(&head, peer, shared)).await {
        Ok(caller) => caller,
        Err(refusal) => {
            if record.is_on()
                && let Some(caller) = shared.auth.known_caller(&head)
            {
                record.called_by(&caller);
            }
            let refusal = Refusal { response: &refusal, form, meter, record: Some(&record) };
            return refuse(client, refusal, head.is_head(), close, shared).await;
        }
    };
    record.called_by(&caller);
    let Some(route) = route else {
        let refusal = match form {
            ErrorForm::Recif => shared.unknown_workload(path.key),
            ErrorForm::OpenAi => root::unknown_model(&shared.unknown_workload(path.key), &path),
        };
        let refusal = Refusal { response: &refusal, form, meter, record: Some(&record) };
        return refuse(client, refusal, head.is_head(), close, shared).await;
    };
    if shared.log.traces.is_on() {
        let traced = TracedRequest { head: &head, caller: &caller, peer, workload: &route.workload, arrived };
        record.trace(&traced, || origin(&head, peer, shared));
    }
    head.upgrades &= caller.may_upgrade();
    let Some(_ticket) = shared.clients.acquire(|| client_id(&caller, &head, peer, shared)) else {
        let refusal = too_many_requests();
        let refusal = Refusal { response: &refusal, form, meter, record: Some(&record) };
        return refuse(client, refusal, head.is_head(), close, shared).await;
    };
    let session = match SessionRef::read(&head, route.workload.kind) {
        Ok(session) => session,
        Err(refusal) => {
            let refusal = Refusal { response: &refusal, form, meter, record: Some(&record) };
            return refuse(client, refusal, head.is_head(), close, shared).await;
        }
    };
    if let Some(refusal) = limited(&route, || client_id(&caller, &head, peer, shared), shared) {
        let form = form_at(path.rest, form);
        let refusal = Refusal { response: &refusal, form, meter, record: Some(&record) };
        return refuse(client, refusal, head.is_head(), close, shared).await;
    }
    let token = shared.keys.get().map(|keys| route.workload.token(caller.user.as_ref(), caller.is_approver, &keys));
    let token = token.as_deref();
    let answered = || held.release();
    let answered = &answered;
    let call = RequestContext {
        head: &head,
        path: &path,
        caller: &caller,
        peer,
        arrived,
        session,
        token,
        answered,
        record: &record,
        shared,
    };
    let ended = {
        let relayed = std::pin::pin!(relay::relay(client, &call, route, timer));
        let is_allowed = || is_still_authorized(&call);
        while_allowed(relayed, arrived, rechecks, is_allowed).await
    };
    match ended.unwrap_or(RelayOutcome::Aborted) {
        RelayOutcome::Served { again } => {
            record.complete();
            Ok(again && !shared.leaving())
        }
        RelayOutcome::Aborted => Err(AbortConnection),
        // The body may be unread, or read in part.
        RelayOutcome::Refused(refusal) => {
            let close = close || client.overrun;
            let refusal = Refusal { response: &refusal, form, meter, record: Some(&record) };
            refuse(client, refusal, head.is_head(), close, shared).await
        }
    }
}

/// Reports whether the request would still be authorized. An API server that cannot be reached ends nothing.
async fn is_still_authorized(call: &RequestContext<'_>) -> bool {
    let RequestContext { head, path, peer, shared, .. } = call;
    let route = shared.routes.find(path.key);
    let admitted = shared.auth.authorize(head, path, route.as_deref(), || origin(head, peer, shared)).await;
    let lost = admitted.is_err_and(|refusal| matches!(refusal.status, 401 | 403));
    if lost {
        let target = String::from_utf8_lossy(path.prefix);
        tracing::info!(%target, "a stream is ended: its caller may not call the workload any more");
    }
    !lost
}

/// Counts a request against the limits of its workload, if tokens are left for it. Returns the refusal if they are not, or a limit is
/// reached.
fn limited(route: &Route, client: impl Fn() -> ClientId, shared: &GatewayContext) -> Option<LocalResponse> {
    let Route { object, workload, meter, .. } = route;
    if !object.has_limits() {
        return None;
    }
    let now = LimitTime::now(&shared.clock);
    if let Some(budgets) = &object.budgets
        && let Err(refusal) = shared.limits.check_budgets(budgets, &workload.full_name, &client, now)
    {
        meter.count_over_budget(refusal.per);
        return Some(refusal.response());
    }
    if let Some(cost) = &object.cost
        && let Err(refusal) = shared.limits.check_budgets(&cost.budgets, &cost.name(&workload.full_name), &client, now)
    {
        meter.count_over_budget(refusal.per);
        return Some(cost.response(&refusal));
    }
    let refusal = shared.limits.admit(object.limits?, &workload.full_name, client, now).err()?;
    meter.count_limited(refusal.per);
    Some(refusal.response(workload.kind))
}

/// Serves a request at the root. Returns the agent that is to serve it, or how the request ended.
async fn at_root<'a, S: ClientStream>(
    client: &mut Connection<S>,
    head: &RequestHead<'_>,
    peer: &Peer,
    close: bool,
    shared: &'a Arc<GatewayContext>,
) -> Result<(ChosenAgent, HeldBody<'a>), Result<bool, AbortConnection>> {
    match root::resolve(client, head, peer, origin(head, peer, shared), shared).await {
        RootOutcome::Agent(agent, body) => Ok((agent, body)),
        RootOutcome::Refused(refusal) => {
            let refusal = Refusal { response: &refusal, form: ErrorForm::OpenAi, meter: None, record: None };
            Err(refuse(client, refusal, head.is_head(), close, shared).await)
        }
        RootOutcome::Responded { again } => Err(Ok(client.flush().await.is_ok() && again)),
        RootOutcome::Gone => Err(Err(AbortConnection)),
    }
}

/// Refusal as the client gets it.
#[derive(Clone, Copy)]
struct Refusal<'a> {
    response: &'a LocalResponse,
    form: ErrorForm,
    /// Meter of the addressed workload, if there is one.
    meter: Option<&'a Meter>,
    /// Record for audit and trace, if the request is for a workload.
    record: Option<&'a RecordGuard<'a>>,
}

impl<'a> Refusal<'a> {
    /// Creates the refusal of a request that leads to no workload.
    fn of(response: &'a LocalResponse) -> Self {
        Self { response, form: ErrorForm::Recif, meter: None, record: None }
    }
}

async fn refuse<S: ClientStream>(
    client: &mut Connection<S>,
    refusal: Refusal<'_>,
    to_head: bool,
    close: bool,
    shared: &GatewayContext,
) -> Result<bool, AbortConnection> {
    shared.metrics.refused(refusal.meter, refusal.response);
    if let Some(record) = refusal.record {
        record.refused(refusal.response);
    }
    Ok(respond(client, refusal, to_head, close).await.is_ok() && !close)
}

async fn respond<S: ClientStream>(
    client: &mut Connection<S>,
    Refusal { response, form, record, .. }: Refusal<'_>,
    to_head: bool,
    close: bool,
) -> io::Result<()> {
    let run = record.and_then(RecordGuard::run);
    response.write(form, run.as_deref(), to_head, close, &mut client.outgoing);
    drop(run);
    client.flush().await
}
