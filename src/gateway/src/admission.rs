//! Admission of a request: acquires a slot of a Pod at once if there is room, and queues the request if there is none.

use std::{sync::Arc, time::Duration};

use http1::Connection;
use tokio::time::{Instant, sleep};

use super::{
    clock::random_between,
    cold_start,
    local_response::{LocalResponse, unknown_workload},
    meter::ColdStart,
    peer::ClientStream,
    request::RequestContext,
    routes::Route,
    sessions::{self, SessionRef},
    slots::{QueueTicket, SlotPermit},
    state::GatewayContext,
};

/// Number of bytes of a request up to which more are read while it waits. One read may add more, and a request at the root
/// comes with up to 1 MiB, for which it has a permit until its answer begins.
const MAX_BUFFERED: usize = 64 * 1024;
/// Default for `spec.timeout`: the longest wait for a slot, and for the first byte of a response.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Reasons for which no slot was acquired.
pub(super) enum SlotError {
    /// The request is refused with this response.
    Refused(LocalResponse),
    /// The client closed its connection.
    ClientGone,
}

/// Acquires a slot for a request. Replaces `route` by its current version while the request waits.
pub(super) async fn acquire_slot<S: ClientStream>(
    client: &mut Connection<S>,
    call: &RequestContext<'_>,
    route: &mut Arc<Route>,
) -> Result<SlotPermit, SlotError> {
    check_available(route)?;
    if let Some(permit) = route.workload.slots.acquire(&route.pods) {
        return Ok(permit);
    }
    // Boxed, because few requests wait and the future of every connection is as large as its largest state.
    Box::pin(async {
        let began = Instant::now();
        let slot = wait_for_slot(client, call.path.key, route, call.arrived, call.shared).await;
        call.audit.queued(began.elapsed());
        slot
    })
    .await
}

async fn wait_for_slot<S: ClientStream>(
    client: &mut Connection<S>,
    key: &[u8],
    route: &mut Arc<Route>,
    arrived: Instant,
    shared: &Arc<GatewayContext>,
) -> Result<SlotPermit, SlotError> {
    let settings = &shared.settings;
    let mut cold = false;
    let mut pause = 25;
    let mut ticket: Option<QueueTicket> = None;
    let mut wait = route.meter.begin_wait();
    loop {
        cold |= route.pods.is_empty();
        let longest = if cold { settings.cold_start_timeout } else { settings.queue_timeout };
        let until = arrived + longest.min(route.object.timeout.unwrap_or(DEFAULT_TIMEOUT));
        if Instant::now() >= until {
            route.workload.count_refused();
            wait.end_cold_start(ColdStart::Timeout);
            return Err(SlotError::Refused(timeout_response(cold)));
        }
        let granted = match &mut ticket {
            Some(ticket) => ticket,
            None => match route.workload.slots.enqueue(arrived, settings.queue_per_workload) {
                Some(joined) => ticket.insert(joined),
                None => {
                    route.workload.count_refused();
                    let error = "as many requests as allowed wait for this workload already";
                    return Err(SlotError::Refused(LocalResponse::new(503, "queue-full", error)));
                }
            },
        };
        if route.pods.is_empty() {
            wait.begin_cold_start();
            cold_start::start_probing(route, key, shared);
        }
        let wake = Instant::now() + Duration::from_millis(random_between(pause / 2, pause));
        tokio::select! {
            biased;
            permit = &mut granted.granted => match permit {
                Ok(permit) => {
                    wait.end_cold_start(ColdStart::Served);
                    if cold {
                        shared.metrics.record_cold_start(route.workload.kind, arrived.elapsed());
                    }
                    return Ok(permit);
                }
                // The queue was cleared because the state of the workload changed: check it again and enqueue anew.
                Err(_) => ticket = None,
            },
            there = read_while_waiting(client) => {
                if !there {
                    return Err(SlotError::ClientGone);
                }
                continue;
            }
            () = sleep(until.min(wake).saturating_duration_since(Instant::now())) => {
                pause = (pause * 2).min(200);
                route.workload.slots.dispatch();
            }
        }
        *route = shared.routes.find(key).ok_or_else(workload_gone)?;
        check_available(route)?;
    }
}

/// Reads more of the request, or waits only for the client to close once [`MAX_BUFFERED`] bytes are held. Returns false
/// if the client has closed its connection.
async fn read_while_waiting<S: ClientStream>(client: &mut Connection<S>) -> bool {
    if client.incoming.len() < MAX_BUFFERED {
        return client.fill().await.unwrap_or(false);
    }
    client.io.closed().await;
    false
}

/// Acquires a slot of the Pod that holds the session, even if that Pod is at its cap.
///
/// # Errors
/// No Pod holds the session, so clients open a new one, or the Pods of the workload must not be used any more.
pub(super) fn session_slot(route: &Route, session: &SessionRef<'_>) -> Result<SlotPermit, LocalResponse> {
    if let Some(no_pod) = route.object.no_pod.as_ref().filter(|no_pod| !no_pod.pods_serve) {
        return Err(LocalResponse::new(503, "unavailable", String::from(&*no_pod.sentence)));
    }
    let pod = route.all.iter().find(|pod| pod.tag == session.tag);
    pod.map(|pod| route.workload.slots.acquire_pinned(pod)).ok_or_else(sessions::session_gone)
}

/// Refuses the request if no Pod is going to become ready for it.
fn check_available(route: &Route) -> Result<(), SlotError> {
    match &route.object.no_pod {
        Some(no_pod) if route.pods.is_empty() || !no_pod.pods_serve => {
            if no_pod.ended_by_pods {
                route.workload.count_halted();
            }
            Err(SlotError::Refused(LocalResponse::new(503, "unavailable", String::from(&*no_pod.sentence))))
        }
        _ => Ok(()),
    }
}

fn workload_gone() -> SlotError {
    SlotError::Refused(unknown_workload())
}

fn timeout_response(cold: bool) -> LocalResponse {
    match cold {
        true => LocalResponse::new(503, "not-ready", "no Pod of the workload became ready in time"),
        false => LocalResponse::new(503, "no-capacity", "every Pod of the workload was busy for too long"),
    }
}
