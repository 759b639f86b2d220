//! One session per server, opened when first needed and again when it broke.
//!
//! A call is never repeated when the server may have acted on it. A session in which a call broke or ran out of time is
//! not used for another; calls in flight in it still end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::session::{McpError, Server, Session};

/// The session of one server; whoever opens it holds the lock, so that two calls open one.
type Slot = Arc<AsyncMutex<Option<Arc<Session>>>>;

/// The sessions of a process.
#[derive(Default)]
pub struct Sessions {
    slots: Mutex<Vec<(Server, Slot)>>,
}

impl Sessions {
    /// Calls a tool of a server, connecting to it if need be, all within `deadline`.
    ///
    /// # Errors
    /// Any [`McpError`].
    pub async fn call_tool(
        &self,
        client: &Client,
        server: &Server,
        name: &str,
        arguments: Map<String, Value>,
        deadline: Duration,
    ) -> Result<String, McpError> {
        let end = Instant::now() + deadline;
        let slot = self.slot(server);
        let session = open(&slot, client, server, end).await?;
        let result = session.call_tool(name, arguments, left(end)).await;
        if let Err(McpError::Broken { .. } | McpError::Timeout { .. }) = &result {
            close(&slot, &session).await;
        }
        result
    }

    /// Who sends other headers is somebody else to the server, and has a session of his own.
    fn slot(&self, server: &Server) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, slot)) = slots.iter().find(|(known, _)| known == server) {
            return slot.clone();
        }
        let slot = Slot::default();
        slots.push((server.clone(), slot.clone()));
        slot
    }
}

/// The session that is there, or a new one.
async fn open(slot: &Slot, client: &Client, server: &Server, end: Instant) -> Result<Arc<Session>, McpError> {
    let mut slot = slot.lock().await;
    if let Some(session) = slot.as_ref().filter(|session| !session.is_closed()) {
        return Ok(session.clone());
    }
    let session = Arc::new(Session::connect(client.clone(), server, left(end)).await?);
    *slot = Some(session.clone());
    Ok(session)
}

/// Takes `session` out, unless another call has replaced it already.
async fn close(slot: &Slot, session: &Arc<Session>) {
    let mut slot = slot.lock().await;
    if slot.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, session)) {
        *slot = None;
    }
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}
