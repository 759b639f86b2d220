//! Servers that are asked for their tools: one task for each, which asks, tells the object's queue, and waits for its next turn.
//!
//! Asking goes on beside the steps ([`asker`]), as long as the server likes within its deadline. There is a place for every
//! server that anybody has: one that hangs holds a place and little memory, and keeps nobody waiting. Those that failed the
//! last time have places of their own, so that not even thousands of them would be in the way of the others. A server is asked
//! again only if its object looked at what it said ([`turns`]).

mod lister;
mod mcp_lister;
mod poll_loop;
#[cfg(test)]
mod poll_loop_tests;
mod shared;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use actions::{
    discovery::{DiscoveryResult, DiscoveryTarget, Schedule, ToolDiscovery},
    ports::ChildClient,
};
use cluster::cache::Keys;
use lister::ToolLister;
use mcp::Cidr;
use meta::Key;
use tokio::sync::Semaphore;

use self::{mcp_lister::McpToolLister, poll_loop::DiscoveryLoop};
use crate::discovery::shared::{DiscoveryContext, LatestDiscovery, ServerTask, ServerTaskHandle, random_fraction};

/// How many are asked at a time: of those that answered the last time, and of those that did not.
const HEALTHY_PERMITS: usize = 1024;
const FAILING_PERMITS: usize = 512;

/// The servers.
pub struct Discoverer {
    shared: Arc<DiscoveryContext>,
    servers: Mutex<HashMap<(&'static str, Key), ServerTask>>,
}

impl fmt::Debug for Discoverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discoverer").field("servers", &self.servers().len()).finish_non_exhaustive()
    }
}

impl Discoverer {
    /// Asks nobody yet. Addresses in the ranges that are `denied` are not connected to; servers of ours know us by these keys.
    pub fn new(cluster: Arc<dyn ChildClient>, denied: Vec<Cidr>, keys: Keys) -> Self {
        Self::with_lister(McpToolLister::new(cluster, denied, keys))
    }

    fn with_lister(asks: impl ToolLister + 'static) -> Self {
        let shared = DiscoveryContext {
            lister: Box::new(asks),
            healthy: Semaphore::new(HEALTHY_PERMITS),
            failing: Semaphore::new(FAILING_PERMITS),
            trigger: OnceLock::new(),
        };
        Self { shared: Arc::new(shared), servers: Mutex::default() }
    }

    /// Whom news is told.
    pub fn on_change(&self, wake: impl Fn(&'static str, &Key) + Send + Sync + 'static) {
        // Set once, when the queues are made.
        let _ = self.shared.trigger.set(Box::new(wake));
    }

    /// The object is gone.
    pub fn forget(&self, kind: &'static str, key: &Key) {
        self.servers().remove(&(kind, key.clone()));
    }

    /// Asks nobody any more and forgets what was said: whoever leads meanwhile asks for itself.
    pub fn clear(&self) {
        self.servers().clear();
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<(&'static str, Key), ServerTask>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolDiscovery for Discoverer {
    fn query(&self, target: &DiscoveryTarget, when: Schedule) -> Option<Arc<DiscoveryResult>> {
        let mut servers = self.servers();
        let place = (target.kind, target.key.clone());
        let known = servers.get(&place);
        if let Some(server) = known.filter(|server| server.target == *target && !server.task.0.is_finished()) {
            let last = server.latest.last().clone();
            // Who waits now does not wait for a turn that may be long in coming.
            if last.is_some() || when == Schedule::OnResync || server.when == Schedule::Now {
                server.latest.observed.notify_one();
                return last;
            }
        }
        let delay = match when {
            Schedule::OnResync if known.is_none() => target.resync.mul_f64(random_fraction()),
            _ => Duration::ZERO,
        };
        let told = Arc::<LatestDiscovery>::default();
        let turns = DiscoveryLoop::new(self.shared.clone(), target.clone(), told.clone());
        let task = ServerTaskHandle(tokio::spawn(turns.run(delay)).abort_handle());
        servers.insert(place, ServerTask { target: target.clone(), when, latest: told, task });
        None
    }
}
