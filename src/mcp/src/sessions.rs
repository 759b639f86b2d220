//! Sessions with servers: one per server, opened on first use and again after it broke.
//!
//! Credentials in headers rotate, and each new one opens a session of its own. A session that is not used any more is dropped at a
//! later call.
//!
//! A call is never retried when the server may have acted on it. A session in which a call broke or timed out is not used for
//! another; calls in flight in it still end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::session::{CallTrace, McpError, McpSession, ServerEndpoint};

/// Time without a call after which a session is dropped.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Most sessions that are kept, besides those with calls in flight.
const MAX_SESSIONS: usize = 64;

/// Session of one server. The call that opens it holds the lock, so concurrent calls open one session
/// ([single-flight](https://pkg.go.dev/golang.org/x/sync/singleflight)).
type SessionSlot = Arc<AsyncMutex<Option<Arc<McpSession>>>>;

/// Sessions of a process, by endpoint. Invariant: an endpoint has at most one slot, and a slot at most one session for new calls.
#[derive(Default)]
pub struct Sessions {
    /// Slots in the order of their last use.
    slots: Mutex<Vec<KnownServer>>,
}

struct KnownServer {
    endpoint: ServerEndpoint,
    slot: SessionSlot,
    used: Instant,
}

impl Sessions {
    /// Calls a tool of a server, as a part of `trace`, connecting to it if need be, all within `deadline`.
    ///
    /// # Errors
    /// Any [`McpError`].
    pub async fn call_tool(
        &self,
        client: &Client,
        server: &ServerEndpoint,
        name: &str,
        arguments: Map<String, Value>,
        deadline: Duration,
        trace: Option<&CallTrace>,
    ) -> Result<String, McpError> {
        let end = Instant::now() + deadline;
        let slot = self.slot(server);
        let session = open(&slot, client, server, end).await?;
        let result = session.call_tool(name, arguments, remaining(end), trace).await;
        if let Err(McpError::Broken { .. } | McpError::Timeout { .. }) = &result {
            close(&slot, &session).await;
        }
        result
    }

    /// Returns the slot of an endpoint. Other headers are another identity to the server and get a session of their own.
    fn slot(&self, server: &ServerEndpoint) -> SessionSlot {
        let now = Instant::now();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match slots.iter().position(|known| known.endpoint == *server) {
            Some(at) => slots.remove(at).slot,
            None => SessionSlot::default(),
        };
        slots.push(KnownServer { endpoint: server.clone(), slot: slot.clone(), used: now });
        let mut excess = slots.len().saturating_sub(MAX_SESSIONS);
        // A call in flight holds a clone of its slot.
        slots.retain(|known| {
            let goes = Arc::strong_count(&known.slot) == 1 && (excess > 0 || now - known.used >= IDLE_TIMEOUT);
            excess = excess.saturating_sub(goes.into());
            !goes
        });
        slot
    }
}

/// Returns the open session of the slot, or connects a new one.
async fn open(
    slot: &SessionSlot,
    client: &Client,
    server: &ServerEndpoint,
    end: Instant,
) -> Result<Arc<McpSession>, McpError> {
    let mut slot = slot.lock().await;
    if let Some(session) = slot.as_ref().filter(|session| !session.is_closed()) {
        return Ok(session.clone());
    }
    let session = Arc::new(McpSession::connect(client.clone(), server, remaining(end)).await?);
    *slot = Some(session.clone());
    Ok(session)
}

/// Removes `session` from the slot, unless another call has replaced it already.
async fn close(slot: &SessionSlot, session: &Arc<McpSession>) {
    let mut slot = slot.lock().await;
    if slot.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, session)) {
        *slot = None;
    }
}

fn remaining(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use url::Url;

    use super::*;

    impl Sessions {
        fn use_once(&self, nth: usize) -> SessionSlot {
            self.slot(&ServerEndpoint::at(&Url::parse(&format!("http://server-{nth}/")).unwrap()))
        }

        fn count(&self) -> usize {
            self.slots.lock().unwrap().len()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_is_not_used_any_more_is_dropped() {
        let sessions = Sessions::default();
        let in_flight = sessions.use_once(0);
        sessions.use_once(1);
        tokio::time::advance(Duration::from_secs(3600)).await;
        sessions.use_once(2);
        assert_eq!(sessions.count(), 2);
        assert!(Arc::ptr_eq(&in_flight, &sessions.use_once(0)), "one with a call in flight stays");
    }

    #[tokio::test]
    async fn callers_with_other_headers_share_no_session() {
        let sessions = Sessions::default();
        let slot = |caller: &'static str| {
            let mut server = ServerEndpoint::at(&Url::parse("http://server/").unwrap());
            server.headers.insert("authorization", HeaderValue::from_static(caller));
            sessions.slot(&server)
        };
        let (alice, bob) = (slot("alice"), slot("bob"));
        assert!(Arc::ptr_eq(&alice, &slot("alice")) && !Arc::ptr_eq(&alice, &bob));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_sessions_is_bounded() {
        let sessions = Sessions::default();
        let (in_flight, last) = (sessions.use_once(0), sessions.use_once(1));
        drop(last);
        (2..1000).for_each(|nth| drop(sessions.use_once(nth)));
        assert!(sessions.count() <= 64, "{}", sessions.count());
        assert!(Arc::ptr_eq(&in_flight, &sessions.use_once(0)));
    }
}
