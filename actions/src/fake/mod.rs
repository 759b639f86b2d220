//! A simulated cluster: everything the ports ask for, in memory, under paused time.
//!
//! [`Store`] keeps objects as the API server does, `apply` knows who owns which field, `controllers` stand for the
//! Deployment controller, the garbage collector and the namespace controller, [`Ports`] are the operator's way in (with a
//! cache that may lag, a log of every request, and faults), and [`OperatorProcess`] runs the real drivers over them.

mod apply;
mod cache;
mod controllers;
mod objects;
mod operator;
mod patch;
mod ports;
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
pub(crate) use ports::{LoggedRequest, RequestFault, Verb};
pub(crate) use samples::{NS, agent, agent_id, child_id, id, object, secret, settings, tool, tool_id};
pub(crate) use servers::lists_tools;
pub(crate) use store::{Cascade, Health, Store};

use machine::Clock;

/// Time of the simulation: follows tokio's paused clock, and begins within a second, because real time does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimClock {
    begun: tokio::time::Instant,
    /// How many seconds the wall clock was put forward.
    ahead: &'static AtomicI64,
}

impl SimClock {
    /// Puts the wall clock forward, or back, by this many seconds.
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

/// The simulated cluster, shared by the test and the operators it starts.
#[derive(Clone)]
pub(crate) struct Sim {
    pub(crate) clock: SimClock,
    store: Arc<Mutex<Store>>,
    faults: Arc<Mutex<ports::Faults>>,
    servers: servers::ServerResponses,
    /// The public keys of the gateways.
    caller_keys: Arc<Mutex<Option<String>>>,
}

impl Sim {
    /// An empty cluster. Needs a tokio runtime with paused time.
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

    /// Another cluster in the same state.
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

    /// The API server's state, for a stranger's edits and for looking.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.try_lock().expect("one user at a time: keep no guard")
    }

    /// What the server of tools at this address says from now on.
    pub(crate) fn serve(&self, url: &str, answer: crate::discovery::DiscoveryResult) {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).insert(url.to_owned(), answer);
    }

    /// The public keys of the gateways are these from now on.
    pub(crate) fn rotate(&self, keys: &str) {
        *self.caller_keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys.to_owned());
    }

    /// The operator knows no keys of the gateways any more.
    pub(crate) fn forget_keys(&self) {
        *self.caller_keys.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Decides what becomes of each request from now on.
    pub(crate) fn plan(&self, plan: impl FnMut(&LoggedRequest, &mut Store) -> RequestFault + Send + 'static) {
        self.faults().plan = Some(Box::new(plan));
    }

    /// No more faults.
    pub(crate) fn clear_faults(&self) {
        self.faults().plan = None;
    }

    /// Every request since the last call.
    pub(crate) fn take_requests(&self) -> Vec<LoggedRequest> {
        std::mem::take(&mut self.faults().log)
    }

    /// Every write since the last call, as `PATCH status Agent/a`.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        self.take_requests().into_iter().filter(LoggedRequest::is_write).map(|request| request.to_string()).collect()
    }

    fn faults(&self) -> MutexGuard<'_, ports::Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
