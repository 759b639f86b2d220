//! What the workload remembers: what is in flight, what was told to it, what it saw.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use tokio::sync::watch;

use crate::mcp::TestMcpServer;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct TestWorkloadState {
    stats: Mutex<TestWorkloadStats>,
    in_flight: watch::Sender<usize>,
    gates: watch::Sender<HashSet<String>>,
    stopping: watch::Sender<bool>,
    broken: watch::Sender<bool>,
    /// The MCP server that it is, too.
    pub(crate) mcp: TestMcpServer,
}

/// What `/stats` tells.
#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct TestWorkloadStats {
    in_flight: usize,
    /// Most requests in flight at the same time so far.
    highest: usize,
    begun: usize,
    /// Answered to the end.
    completed: usize,
    /// Whose client was gone before.
    left: usize,
}

/// A request in flight. Dropped without [`Flight::complete`], its client was gone.
#[derive(Debug)]
pub(crate) struct TrackedRequest<'a> {
    state: &'a TestWorkloadState,
    completed: bool,
}

impl TestWorkloadState {
    /// A request begins.
    pub(crate) fn begin(&self) -> TrackedRequest<'_> {
        let mut seen = self.lock();
        seen.begun += 1;
        seen.in_flight += 1;
        seen.highest = seen.highest.max(seen.in_flight);
        self.in_flight.send_replace(seen.in_flight);
        TrackedRequest { state: self, completed: false }
    }

    /// What was seen, as JSON.
    pub(crate) fn stats(&self) -> String {
        serde_json::to_string(&*self.lock()).unwrap_or_default()
    }

    /// Lets whoever waits at a gate pass, now and later.
    pub(crate) fn open_gate(&self, gate: &str) {
        self.gates.send_modify(|open| open.extend([gate.to_owned()]));
    }

    /// Waits at a gate.
    pub(crate) async fn await_gate(&self, gate: &str) {
        let _ = self.gates.subscribe().wait_for(|open| open.contains(gate)).await;
    }

    /// From now on it is not healthy.
    pub(crate) fn break_down(&self) {
        self.broken.send_replace(true);
    }

    /// Whether it is healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        !*self.broken.borrow()
    }

    /// No connection takes another request.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Whether it stops.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns when it stops.
    pub(crate) async fn stopped(&self) {
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Returns when nothing is in flight.
    pub(crate) async fn idle(&self) {
        let _ = self.in_flight.subscribe().wait_for(|in_flight| *in_flight == 0).await;
    }

    fn lock(&self) -> MutexGuard<'_, TestWorkloadStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackedRequest<'_> {
    /// It was answered to the end.
    pub(crate) fn complete(mut self) {
        self.completed = true;
    }
}

impl Drop for TrackedRequest<'_> {
    fn drop(&mut self) {
        let mut seen = self.state.lock();
        seen.in_flight -= 1;
        if self.completed {
            seen.completed += 1;
        } else {
            seen.left += 1;
        }
        self.state.in_flight.send_replace(seen.in_flight);
    }
}
