//! State of the workload: the requests in flight, its configuration, and its counters.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::{billing::BillingProvider, mcp::TestMcpServer};

/// Whole state of the workload.
///
/// Invariant: `in_flight` has the value of `stats.in_flight`.
#[derive(Debug, Default)]
pub(crate) struct TestWorkloadState {
    stats: Mutex<TestWorkloadStats>,
    in_flight: watch::Sender<usize>,
    gates: watch::Sender<HashSet<String>>,
    stopping: watch::Sender<bool>,
    broken: watch::Sender<bool>,
    /// Requests with spans.
    spans: Mutex<Vec<Value>>,
    /// State of the workload's MCP server.
    pub(crate) mcp: TestMcpServer,
    /// State of the workload's provider of models.
    pub(crate) billing: BillingProvider,
}

/// Counters that `/stats` returns.
///
/// Invariant: `begun` is the sum of `in_flight`, `completed` and `left`.
#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct TestWorkloadStats {
    in_flight: usize,
    /// Highest number of requests in flight so far.
    highest: usize,
    begun: usize,
    /// Requests whose response was sent to its end.
    completed: usize,
    /// Requests whose client disconnected before.
    left: usize,
}

/// Request in flight. If it is dropped without [`TrackedRequest::complete`], it counts as `left`.
#[derive(Debug)]
pub(crate) struct TrackedRequest<'a> {
    state: &'a TestWorkloadState,
    completed: bool,
}

impl TestWorkloadState {
    /// Counts the begin of a request.
    pub(crate) fn begin(&self) -> TrackedRequest<'_> {
        let mut seen = self.lock();
        seen.begun += 1;
        seen.in_flight += 1;
        seen.highest = seen.highest.max(seen.in_flight);
        self.in_flight.send_replace(seen.in_flight);
        TrackedRequest { state: self, completed: false }
    }

    /// Returns the counters as JSON.
    pub(crate) fn stats(&self) -> String {
        serde_json::to_string(&*self.lock()).unwrap_or_default()
    }

    /// Keeps a request with spans.
    pub(crate) fn keep_spans(&self, body: &[u8]) {
        let request = serde_json::from_slice(body).unwrap_or_default();
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }

    /// Returns the requests with spans as JSON.
    pub(crate) fn spans(&self) -> String {
        serde_json::to_string(&*self.spans.lock().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()
    }

    /// Opens a gate: all waiting and all later requests pass.
    pub(crate) fn open_gate(&self, gate: &str) {
        self.gates.send_modify(|open| open.extend([gate.to_owned()]));
    }

    /// Waits until a gate is open.
    pub(crate) async fn await_gate(&self, gate: &str) {
        let _ = self.gates.subscribe().wait_for(|open| open.contains(gate)).await;
    }

    /// Makes the workload unhealthy for good.
    pub(crate) fn break_down(&self) {
        self.broken.send_replace(true);
    }

    /// Reports whether the workload is healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        !*self.broken.borrow()
    }

    /// Stops the workload: no connection accepts another request.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Reports whether the workload stops.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the workload stops.
    pub(crate) async fn stopped(&self) {
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Waits until no request is in flight.
    pub(crate) async fn idle(&self) {
        let _ = self.in_flight.subscribe().wait_for(|in_flight| *in_flight == 0).await;
    }

    fn lock(&self) -> MutexGuard<'_, TestWorkloadStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackedRequest<'_> {
    /// Marks the request as responded to in full.
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
