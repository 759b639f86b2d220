//! The sessions of the older era, by name and by the user who opened them: to all others they are not there.
//!
//! Fair share: when there are as many as there may be, a user who has less than an equal part gets the place of a session
//! of the user who has most, the one that has been idle for longest. One whose requests are in flight is left alone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use daemon::ids::random_hex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{message::RpcId, serve::Bridge, session::ChildSession};

/// How long the child of a session may take to make room for another.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Who calls, as the sidecar tells; `None`: a caller without a name.
pub(super) type SessionUser = Option<Arc<str>>;

/// Why there is no new session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
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
    by_id: Mutex<HashMap<String, (SessionUser, Arc<ChildSession>)>>,
    max_sessions: usize,
    /// One permit per child that may still be started.
    permits: Arc<Semaphore>,
}

impl Sessions {
    /// At most `most` at the same time.
    pub(super) fn new(most: usize) -> Self {
        Self {
            by_id: Mutex::default(),
            max_sessions: most,
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Begins one of `user` for the request `opening`.
    ///
    /// # Errors
    /// There are too many, or its child cannot be started.
    pub(super) async fn begin(
        &self,
        opening: RpcId,
        user: SessionUser,
        bridge: &Arc<Bridge>,
    ) -> Result<Arc<ChildSession>, SessionError> {
        let slot = match self.permits.clone().try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => self.evict(&user).await.ok_or(SessionError::Full(self.max_sessions))?,
        };
        let id = random_hex::<16>()?;
        let (session, parts) = ChildSession::start(id.clone(), opening, bridge, slot)?;
        self.by_id().insert(id, (user, session.clone()));
        bridge.tasks.spawn(session.clone().run(bridge.clone(), parts));
        Ok(session)
    }

    /// The place of a session that had more than its share, for one of `user`.
    async fn evict(&self, user: &SessionUser) -> Option<OwnedSemaphorePermit> {
        self.eviction_candidate(user)?.end();
        timeout(EVICTION_TIMEOUT, self.permits.clone().acquire_owned()).await.ok()?.ok()
    }

    /// The session that has been idle for longest, of the users who have more than an equal part, where `user` has less.
    fn eviction_candidate(&self, user: &SessionUser) -> Option<Arc<ChildSession>> {
        let by_id = self.by_id();
        let mut counts = HashMap::from([(user, 0)]);
        for (owner, session) in by_id.values() {
            *counts.entry(owner).or_insert(0) += usize::from(!session.is_over());
        }
        let share = (self.max_sessions / counts.len()).max(1);
        if counts[user] >= share {
            return None;
        }
        let most = counts.values().copied().max().filter(|most| *most > share)?;
        let of_them = by_id.values().filter(|(owner, session)| counts[owner] == most && !session.is_over());
        let idle = of_them.filter_map(|(_, session)| Some((session.idle_since()?, session)));
        idle.min_by_key(|(since, _)| *since).map(|(_, session)| session.clone())
    }

    /// The session of that name, if it is this user's and not over.
    pub(super) fn get(&self, id: &str, user: &SessionUser) -> Option<Arc<ChildSession>> {
        let by_id = self.by_id();
        let (_, session) = by_id.get(id).filter(|(owner, session)| owner == user && !session.is_over())?;
        Some(session.clone())
    }

    /// Forgets one.
    pub(super) fn forget(&self, id: &str) {
        self.by_id().remove(id);
    }

    /// Ends the streams that would never end by themselves.
    pub(super) fn end_listening(&self) {
        self.by_id().values().for_each(|(_, session)| session.end_listening());
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<String, (SessionUser, Arc<ChildSession>)>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
