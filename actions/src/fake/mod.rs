//! Simulates a cluster in memory under paused time: a deterministic implementation of the ports.
//!
//! [`Store`] stores objects as the API server does, `apply` implements server-side apply, `controllers` simulates the Deployment
//! controller, the garbage collector and the namespace controller, [`ports::Ports`] implements the operator's ports (with a cache
//! that may lag, a log of every request, and fault injection), and [`Operator`] runs the real drivers over them.

mod apply;
mod cache;
mod controllers;
mod objects;
mod operator;
mod patch;
mod ports;
mod requests;
mod samples;
mod servers;
mod state;
mod store;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use jiff::{SignedDuration, Timestamp};

pub(crate) use objects::{Obj, ObjectId};
pub(crate) use operator::{Operator, RunEnd, run_with_restarts};
pub(crate) use requests::{LoggedRequest, RequestFault, Verb};
pub(crate) use samples::{NS, agent, agent_id, child_id, id, object, secret, settings, tool, tool_id};
pub(crate) use servers::lists_tools;
pub(crate) use store::{Cascade, Health, Store};

use machine::Clock;

/// Clock of the simulation: follows tokio's paused clock, and begins at a fraction of a second, as real time does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimClock {
    begun: tokio::time::Instant,
    /// Seconds by which the wall clock was set forward.
    ahead: &'static AtomicI64,
}

impl SimClock {
    /// Sets the wall clock forward, or back, by this many seconds.
    pub(crate) fn jump(self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let begin = Timestamp::from_millisecond(1_900_000_000_400).expect("a time");
        let now = begin.checked_add(self.begun.elapsed()).expect("a time");
        now.checked_add(SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed))).expect("a time")
    }

    fn elapsed(&self) -> std::time::Duration {
        self.begun.elapsed()
    }
}

/// Simulated cluster, shared by the test and the operators it starts.
#[derive(Clone)]
pub(crate) struct Sim {
    pub(crate) clock: SimClock,
    store: Arc<Mutex<Store>>,
    faults: Arc<Mutex<requests::Faults>>,
    servers: servers::ServerResponses,
    /// Public keys of the gateways.
    caller_keys: Arc<Mutex<Option<String>>>,
}

impl Sim {
    /// Creates an empty cluster. Needs a tokio runtime with paused time.
    pub(crate) fn new() -> Self {
        let clock = SimClock { begun: tokio::time::Instant::now(), ahead: Box::leak(Box::default()) };
        Self {
            clock,
            store: Arc::new(Mutex::new(Store::new(clock))),
            faults: Arc::default(),
            servers: Arc::default(),
            caller_keys: Arc::default(),
        }
    }

    /// Creates another cluster in the same state.
    pub(crate) fn fork(&self) -> Self {
        let mut store = self.store().clone();
        store.log.clear();
        Self {
            clock: self.clock,
            store: Arc::new(Mutex::new(store)),
            faults: Arc::default(),
            servers: self.servers.clone(),
            caller_keys: self.caller_keys.clone(),
        }
    }

    /// Returns the API server's state, for reads and for edits by other clients.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.try_lock().expect("one user at a time: keep no guard")
    }

    /// Sets the answer of the MCP server at this address from now on.
    pub(crate) fn serve(&self, url: &str, answer: crate::discovery::DiscoveryResult) {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).insert(url.to_owned(), answer);
    }

    /// Replaces the public keys of the gateways.
    pub(crate) fn rotate(&self, keys: &str) {
        *self.caller_keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys.to_owned());
    }

    /// Removes the operator's knowledge of the public keys of the gateways.
    pub(crate) fn forget_keys(&self) {
        *self.caller_keys.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Decides the fault of each request from now on.
    pub(crate) fn plan(&self, plan: impl FnMut(&LoggedRequest, &mut Store) -> RequestFault + Send + 'static) {
        self.faults().plan = Some(Box::new(plan));
    }

    /// Injects no more faults.
    pub(crate) fn clear_faults(&self) {
        self.faults().plan = None;
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<LoggedRequest> {
        std::mem::take(&mut self.faults().log)
    }

    /// Returns the writes since the last call, such as `Status Agent/a`.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        self.take_requests().into_iter().filter(LoggedRequest::is_write).map(|request| request.to_string()).collect()
    }

    fn faults(&self) -> MutexGuard<'_, requests::Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
