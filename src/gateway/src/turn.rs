//! A request's way to a slot of a Pod: at once if there is room, else by waiting for its turn.

use crate::answer::unknown;
use std::{sync::Arc, time::Duration};

use http1::Side;
use tokio::time::{Instant, sleep};

use super::{
    answer::Answer,
    clock::between,
    cold_start,
    peer::Link,
    routes::Route,
    sessions::{self, Session},
    state::Shared,
    workload::{Lease, Place},
};

/// Most bytes of a request that are taken in while it waits. One read may bring more.
const HELD: usize = 64 * 1024;
/// The longest wait of a workload that says nothing else, also for the first byte of an answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no slot.
pub(super) enum NoTurn {
    /// The client is to be told this.
    Refused(Answer),
    /// It left.
    ClientGone,
}

/// A slot for the request that arrived at `arrived`. `route` is brought up to date while it waits.
pub(super) async fn turn<S: Link>(
    client: &mut Side<S>,
    key: &[u8],
    route: &mut Arc<Route>,
    arrived: Instant,
    shared: &Arc<Shared>,
) -> Result<Lease, NoTurn> {
    check(route)?;
    if let Some(lease) = route.workload.take(&route.pods) {
        return Ok(lease);
    }
    // Boxed, because few requests wait and every connection has room for what one request needs.
    Box::pin(wait(client, key, route, arrived, shared)).await
}

async fn wait<S: Link>(
    client: &mut Side<S>,
    key: &[u8],
    route: &mut Arc<Route>,
    arrived: Instant,
    shared: &Arc<Shared>,
) -> Result<Lease, NoTurn> {
    let settings = &shared.settings;
    let mut cold = false;
    let mut pause = 25;
    let mut place: Option<Place> = None;
    let _depth = shared.metrics.waits(route.workload.kind);
    loop {
        cold |= route.pods.is_empty();
        let longest = if cold { settings.cold_start_timeout } else { settings.queue_timeout };
        let until = arrived + longest.min(route.object.timeout.unwrap_or(TIMEOUT));
        if Instant::now() >= until {
            route.workload.refuse();
            return Err(NoTurn::Refused(late(cold)));
        }
        let granted = match &mut place {
            Some(place) => place,
            None => match route.workload.join(arrived, settings.queue_per_workload) {
                Some(joined) => place.insert(joined),
                None => {
                    route.workload.refuse();
                    let error = "as many requests as allowed wait for this workload already";
                    return Err(NoTurn::Refused(Answer::new(503, "queue-full", error)));
                }
            },
        };
        if route.pods.is_empty() {
            cold_start::look(route, key, shared);
        }
        let wake = Instant::now() + Duration::from_millis(between(pause / 2, pause));
        tokio::select! {
            biased;
            lease = &mut granted.granted => match lease {
                Ok(lease) => {
                    if cold {
                        shared.metrics.started_cold(route.workload.kind, arrived.elapsed());
                    }
                    return Ok(lease);
                }
                // What is waited for has changed.
                Err(_) => place = None,
            },
            there = heard(client) => {
                if !there {
                    return Err(NoTurn::ClientGone);
                }
                continue;
            }
            () = sleep(until.min(wake).saturating_duration_since(Instant::now())) => {
                pause = (pause * 2).min(200);
                route.workload.dispatch();
            }
        }
        *route = shared.routes.find(key).ok_or_else(gone)?;
        check(route)?;
    }
}

/// Waits for more of the request or, once enough of it is held, only for its client to leave; whether it is still there.
async fn heard<S: Link>(client: &mut Side<S>) -> bool {
    if client.incoming.len() < HELD {
        return client.fill().await.unwrap_or(false);
    }
    client.io.left().await;
    false
}

/// A slot of the Pod that has the session.
///
/// # Errors
/// Nobody has it, upon which clients start anew, or its Pods are to be left alone.
pub(super) fn held(route: &Route, session: &Session<'_>) -> Result<Lease, Answer> {
    if let Some(halt) = route.object.halt.as_ref().filter(|halt| !halt.pods_serve) {
        return Err(Answer::new(503, "unavailable", String::from(&*halt.sentence)));
    }
    let pod = route.all.iter().find(|pod| pod.tag == session.tag);
    pod.map(|pod| route.workload.enter(pod)).ok_or_else(sessions::gone)
}

/// Whether there is something to wait for.
fn check(route: &Route) -> Result<(), NoTurn> {
    match &route.object.halt {
        Some(halt) if route.pods.is_empty() || !halt.pods_serve => {
            if halt.ended_by_pods {
                route.workload.refuse_halted();
            }
            Err(NoTurn::Refused(Answer::new(503, "unavailable", String::from(&*halt.sentence))))
        }
        _ => Ok(()),
    }
}

fn gone() -> NoTurn {
    NoTurn::Refused(unknown())
}

fn late(cold: bool) -> Answer {
    match cold {
        true => Answer::new(503, "not-ready", "no Pod of the workload became ready in time"),
        false => Answer::new(503, "no-capacity", "every Pod of the workload was busy for too long"),
    }
}
