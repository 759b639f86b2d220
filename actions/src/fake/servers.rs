//! Simulates MCP servers: each answers after a second with what the test set for its address, and is queried again after its
//! resync.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use machine::Clock;

use super::{ObjectId, SimClock};
use crate::discovery::{
    Catalog, CompactTool, Discovered, DiscoveryError, DiscoveryResult, DiscoveryTarget, McpToolDefinition, Schedule,
    ToolDiscovery,
};

/// Answers of all servers, by address.
pub(crate) type ServerResponses = Arc<Mutex<BTreeMap<String, DiscoveryResult>>>;

/// Response time of a server.
const TAKES: Duration = Duration::from_secs(1);

/// Builds the answer of a server of the older protocol era with these tools.
pub(crate) fn lists_tools(tools: &[McpToolDefinition]) -> DiscoveryResult {
    let catalogue = Catalog::of(tools.iter().map(CompactTool::from), false);
    Ok(Discovered { catalog: catalogue, server: Default::default(), era: "initialize".to_owned(), changes: 0 })
}

/// Knowledge of one run of the operator about servers.
///
/// Invariant: a server has at most one pending answer, and its next query is due only after that.
pub(super) struct Servers {
    clock: SimClock,
    answers: ServerResponses,
    known: Mutex<BTreeMap<ObjectId, ServerEntry>>,
}

struct ServerEntry {
    target: DiscoveryTarget,
    last: Option<Arc<DiscoveryResult>>,
    /// Number of changes so far: in the simulation each comes soon after the last.
    changes: u32,
    /// Time of the pending answer.
    ends: Option<Duration>,
    /// Time of the next query.
    due: Duration,
}

impl Servers {
    pub(super) fn start(clock: SimClock, answers: ServerResponses) -> Arc<Self> {
        Arc::new(Self { clock, answers, known: Mutex::default() })
    }

    /// Takes in the answers that are due, and returns the objects to wake.
    pub(super) fn settle(&self) -> Vec<ObjectId> {
        let now = self.clock.elapsed();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut woken = Vec::new();
        for (id, known) in self.known().iter_mut() {
            if known.ends.is_some_and(|at| at <= now) {
                let unreachable =
                    DiscoveryError { reason: "ServerUnreachable", message: "no server is there".to_owned() };
                let mut answer = answers.get(&known.target.url).cloned().unwrap_or(Err(unreachable));
                if let Ok(found) = &mut answer {
                    let last = known.last.as_ref().and_then(|last| last.as_ref().as_ref().ok());
                    let is_other = last.is_some_and(|last| last.catalog.digest != found.catalog.digest);
                    known.changes += u32::from(is_other);
                    found.changes = known.changes;
                }
                known.last = Some(Arc::new(answer));
                known.ends = None;
                known.due = now + known.target.resync;
                woken.push(id.clone());
            } else if known.ends.is_none() && known.due <= now {
                known.ends = Some(now + TAKES);
            }
        }
        woken
    }

    /// Returns the time of the next answer or query.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.known().values().map(|known| known.ends.unwrap_or(known.due)).min()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ObjectId, ServerEntry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolDiscovery for Servers {
    fn query(&self, target: &DiscoveryTarget, when: Schedule) -> Option<Arc<DiscoveryResult>> {
        let now = self.clock.elapsed();
        let id = ObjectId { kind: target.kind, namespace: target.key.namespace.clone(), name: target.key.name.clone() };
        let mut all = self.known();
        if let Some(known) = all.get(&id).filter(|known| known.target == *target) {
            return known.last.clone();
        }
        let other = all.contains_key(&id);
        let (ends, due) = match when {
            Schedule::OnResync if !other => (None, now + target.resync / 2),
            _ => (Some(now + TAKES), now),
        };
        all.insert(id, ServerEntry { target: target.clone(), last: None, changes: 0, ends, due });
        None
    }
}
