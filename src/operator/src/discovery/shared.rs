//! Results of the servers, and the permits of their queries.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use actions::discovery::{DiscoveryResult, DiscoveryTarget, Schedule};
use meta::Key;
use tokio::{
    sync::{Notify, Semaphore},
    task::AbortHandle,
};

use super::lister::ToolLister;

/// Shared context of the polling loops of all servers.
pub(super) struct DiscoveryContext {
    pub(super) lister: Box<dyn ToolLister>,
    pub(super) healthy: Semaphore,
    pub(super) failing: Semaphore,
    pub(super) trigger: OnceLock<TriggerFn>,
}

/// Polling task of a server; dropping it ends the task.
pub(super) struct ServerTask {
    pub(super) target: DiscoveryTarget,
    pub(super) when: Schedule,
    pub(super) latest: Arc<LatestDiscovery>,
    pub(super) task: ServerTaskHandle,
}

/// Last result of a server, and the notification that its object has observed it.
#[derive(Default)]
pub(super) struct LatestDiscovery {
    pub(super) last: Mutex<Option<Arc<DiscoveryResult>>>,
    pub(super) observed: Notify,
}

impl LatestDiscovery {
    pub(super) fn last(&self) -> MutexGuard<'_, Option<Arc<DiscoveryResult>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct ServerTaskHandle(pub(super) AbortHandle);

impl Drop for ServerTaskHandle {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Function that enqueues an object whose server has a new result.
pub(super) type TriggerFn = Box<dyn Fn(&'static str, &Key) + Send + Sync>;

/// Returns a random number from 0 to 1.
pub(super) fn random_fraction() -> f64 {
    use std::hash::Hasher;
    let number = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(number >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
