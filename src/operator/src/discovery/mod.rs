//! Discovery of the tools of MCP servers: one polling task per server, which queries it, enqueues its object, and waits for its next turn.
//!
//! A query runs beside the steps ([`mcp_lister`]), for as long as the server takes within its deadline. There are more permits than servers
//! in any expected cluster: one that hangs holds a permit and little memory, and delays no other. Servers that failed the last time have
//! permits of their own, so that not even thousands of them delay the others. A server is queried again only after its object has observed
//! the last result ([`poll_loop`]).

mod lister;
mod mcp_lister;
mod network;
mod poll_loop;
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
use meta::Key;
use tokio::sync::Semaphore;

pub use self::network::{DiscoveryNetwork, HostMap};
use self::{mcp_lister::McpToolLister, poll_loop::DiscoveryLoop};
use crate::discovery::shared::{DiscoveryContext, LatestDiscovery, ServerTask, ServerTaskHandle, random_fraction};

/// Most queries in flight: to servers that answered the last time, and to those that did not.
const HEALTHY_PERMITS: usize = 1024;
const FAILING_PERMITS: usize = 512;

/// Servers and their polling tasks.
///
/// Invariant: one task per object; it ends when its entry is dropped.
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
    /// Creates a discoverer without servers, which are queried in `network`; our own servers recognize the operator by `keys`.
    pub fn new(cluster: Arc<dyn ChildClient>, network: DiscoveryNetwork, keys: Keys) -> Self {
        Self::with_lister(McpToolLister::new(cluster, network, keys))
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

    /// Sets the function that enqueues an object when its server has a new result.
    pub fn on_change(&self, wake: impl Fn(&'static str, &Key) + Send + Sync + 'static) {
        // Set once, when the queues are created.
        let _ = self.shared.trigger.set(Box::new(wake));
    }

    /// Forgets the server of a deleted object.
    pub fn forget(&self, kind: &'static str, key: &Key) {
        self.servers().remove(&(kind, key.clone()));
    }

    /// Stops all queries and forgets all results: the next leader queries by itself.
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
            // A caller that waits does not wait for a first turn that may be far off.
            if last.is_some() || when == Schedule::OnResync || server.when == Schedule::Now {
                server.latest.observed.notify_one();
                return last;
            }
        }
        let delay = match when {
            Schedule::OnResync if known.is_none() => target.resync.mul_f64(random_fraction()),
            _ => Duration::ZERO,
        };
        let latest = Arc::<LatestDiscovery>::default();
        let poll_loop = DiscoveryLoop::new(self.shared.clone(), target.clone(), latest.clone());
        let task = ServerTaskHandle(tokio::spawn(poll_loop.run(delay)).abort_handle());
        servers.insert(place, ServerTask { target: target.clone(), when, latest, task });
        None
    }
}
