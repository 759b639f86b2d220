//! The sessions of the older era, by name.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Semaphore;

use super::{message::Id, serve::Bridge, session::Session};

/// Why there is no new session.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoSession {
    /// As many as there may be.
    #[error("there are {0} sessions, which is all that there may be (RECIF_MAX_SESSIONS); try again")]
    Full(usize),
    /// The system has no process for it.
    #[error("the MCP server cannot be started: {0}")]
    Start(#[from] std::io::Error),
    /// No name for it.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// All sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<String, Arc<Session>>>,
    /// One permit per child that may still be started.
    free: Arc<Semaphore>,
}

impl Sessions {
    /// At most `most` at the same time.
    pub(super) fn new(most: usize) -> Self {
        Self { by_id: Mutex::default(), free: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))) }
    }

    /// Begins one for the request `opening`.
    ///
    /// # Errors
    /// There are too many, or its child cannot be started.
    pub(super) fn begin(&self, opening: Id, bridge: &Arc<Bridge>) -> Result<Arc<Session>, NoSession> {
        let slot = self.free.clone().try_acquire_owned();
        let slot = slot.map_err(|_| NoSession::Full(bridge.options.max_sessions))?;
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (session, parts) = Session::start(id.clone(), opening, bridge, slot)?;
        self.by_id().insert(id, session.clone());
        bridge.tasks.spawn(session.clone().run(bridge.clone(), parts));
        Ok(session)
    }

    /// The session of that name, if it is not over.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.by_id().get(id).filter(|session| !session.is_over()).cloned()
    }

    /// Forgets one.
    pub(super) fn forget(&self, id: &str) {
        self.by_id().remove(id);
    }

    /// Ends the streams that would never end by themselves.
    pub(super) fn end_listening(&self) {
        self.by_id().values().for_each(|session| session.end_listening());
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
