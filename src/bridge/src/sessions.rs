//! Sessions of the older era, by id and by the user who opened them: to all other users they do not exist.
//!
//! Fair share: when all slots are taken, a user who has less than an equal share gets the slot of a session of the user
//! who has most, the one that has been idle for longest. Sessions with requests in flight are not evicted.

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

use super::{message::RpcId, resources::Resources, session::ChildSession};

/// Longest wait until the child of an evicted session has ended.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Caller's name, as the sidecar passes it on; `None` for a caller without a name.
pub(super) type SessionUser = Option<Arc<str>>;

/// Reason for which no session was opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// All slots are taken.
    #[error("there are {0} sessions, which is all that there may be (RECIF_MAX_SESSIONS); try again")]
    Full(usize),
    /// The system cannot start a process.
    #[error("the MCP server cannot be started: {0}")]
    Start(#[from] std::io::Error),
    /// No id can be generated.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// All sessions.
///
/// Invariant: a permit is held for every child from before it is started until it has ended.
#[derive(Debug)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<String, (SessionUser, Arc<ChildSession>)>>,
    max_sessions: usize,
    /// One permit per child that may still be started.
    permits: Arc<Semaphore>,
}

impl Sessions {
    /// Returns a registry of at most `most` sessions at the same time.
    pub(super) fn new(most: usize) -> Self {
        Self {
            by_id: Mutex::default(),
            max_sessions: most,
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Opens a session of `user` for the request `opening`.
    ///
    /// # Errors
    /// There are too many, or its child cannot be started.
    pub(super) async fn begin(
        self: &Arc<Self>,
        opening: RpcId,
        user: SessionUser,
        resources: &Arc<Resources>,
    ) -> Result<Arc<ChildSession>, SessionError> {
        let slot = match self.permits.clone().try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => self.evict(&user).await.ok_or(SessionError::Full(self.max_sessions))?,
        };
        let id = random_hex::<16>()?;
        let (session, parts) = ChildSession::start(id.clone(), opening, resources, slot)?;
        self.by_id().insert(id, (user, session.clone()));
        let (sessions, served, shared) = (self.clone(), session.clone(), resources.clone());
        resources.tasks.spawn(async move {
            served.run(&shared, parts).await;
            sessions.by_id().remove(&served.id);
        });
        Ok(session)
    }

    /// Evicts a session of a user who has more than an equal share, and returns its slot for a session of `user`.
    async fn evict(&self, user: &SessionUser) -> Option<OwnedSemaphorePermit> {
        self.eviction_candidate(user)?.end();
        timeout(EVICTION_TIMEOUT, self.permits.clone().acquire_owned()).await.ok()?.ok()
    }

    /// Returns the session to evict: the one idle for longest of the users who have most, where `user` has less than a
    /// share.
    fn eviction_candidate(&self, user: &SessionUser) -> Option<Arc<ChildSession>> {
        let by_id = self.by_id();
        let mut counts = HashMap::from([(user, 0)]);
        let live = || by_id.values().filter(|(_, session)| !session.is_over());
        for (owner, _) in live() {
            *counts.entry(owner).or_insert(0) += 1;
        }
        let share = (self.max_sessions / counts.len()).max(1);
        if counts[user] >= share {
            return None;
        }
        let most = counts.values().copied().max().filter(|most| *most > share)?;
        let of_them = live().filter(|(owner, _)| counts.get(owner) == Some(&most));
        let idle = of_them.filter_map(|(_, session)| Some((session.idle_since()?, session)));
        idle.min_by_key(|(since, _)| *since).map(|(_, session)| session.clone())
    }

    /// Returns the session of that id, if it belongs to this user and is not over.
    pub(super) fn get(&self, id: &str, user: &SessionUser) -> Option<Arc<ChildSession>> {
        let by_id = self.by_id();
        let (_, session) = by_id.get(id).filter(|(owner, session)| owner == user && !session.is_over())?;
        Some(session.clone())
    }

    /// Ends the streams that would never end by themselves.
    pub(super) fn end_listening(&self) {
        self.by_id().values().for_each(|(_, session)| session.end_listening());
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<String, (SessionUser, Arc<ChildSession>)>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
