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

use super::session::{McpError, McpSession, ServerEndpoint};

/// The session of one server; whoever opens it holds the lock, so that two calls open one.
type SessionSlot = Arc<AsyncMutex<Option<Arc<McpSession>>>>;

/// The sessions of a process.
#[derive(Default)]
pub struct Sessions {
    slots: Mutex<Vec<(ServerEndpoint, SessionSlot)>>,
}

impl Sessions {
    /// Calls a tool of a server, connecting to it if need be, all within `deadline`.
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
    ) -> Result<String, McpError> {
        let end = Instant::now() + deadline;
        let slot = self.slot(server);
        let session = open(&slot, client, server, end).await?;
        let result = session.call_tool(name, arguments, remaining(end)).await;
        if let Err(McpError::Broken { .. } | McpError::Timeout { .. }) = &result {
            close(&slot, &session).await;
        }
        result
    }

    /// Who sends other headers is somebody else to the server, and has a session of his own.
    fn slot(&self, server: &ServerEndpoint) -> SessionSlot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, slot)) = slots.iter().find(|(known, _)| known == server) {
            return slot.clone();
        }
        let slot = SessionSlot::default();
        slots.push((server.clone(), slot.clone()));
        slot
    }
}

/// The session that is there, or a new one.
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

/// Takes `session` out, unless another call has replaced it already.
async fn close(slot: &SessionSlot, session: &Arc<McpSession>) {
    let mut slot = slot.lock().await;
    if slot.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, session)) {
        *slot = None;
    }
}

fn remaining(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}
