//! State that all requests of one workload share: its slots, tokens and counters. It outlives every change of the object.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use identity::{KeySet, TokenCache};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    answering_models::AnsweringModels, clock::Clock, object::RoutedKind, pending_report::PendingReport,
    retry_budget::RetryBudget, slots::SlotQueue, usage_reporting::UsageReporting,
};

/// Shared state of one workload.
///
/// Invariant: `in_flight` is true while a [`ProbePermit`] exists.
#[derive(Debug)]
pub(super) struct WorkloadState {
    /// Kind of the workload.
    pub(super) kind: RoutedKind,
    /// Namespace of the workload.
    pub(super) namespace: Box<str>,
    /// Name of the workload.
    pub(super) name: Box<str>,
    /// Name by which requests address the workload to a sidecar, such as `agent/default/weather`. A sidecar serves one
    /// workload.
    pub(super) full_name: Box<str>,
    /// Last time at which a response below 500 was relayed, in milliseconds since 1970; 0 for never by this process.
    pub(super) invoked_at: AtomicI64,
    /// Retry budget of the workload.
    pub(super) budget: RetryBudget,
    /// Models that answered.
    pub(super) models: AnsweringModels,
    /// Calls that wait for a person, as its responses report them.
    pub(super) pending: PendingReport,
    /// Reports of usage in its responses, while it has a budget.
    pub(super) reporting: UsageReporting,
    /// Cache of the signed tokens for its callers.
    tokens: TokenCache,
    /// Slots of its Pods, and the queue for them.
    pub(super) slots: Arc<SlotQueue>,
    refused: AtomicU64,
    halted: AtomicU64,
    /// Set while a task probes the Pods for readiness.
    in_flight: AtomicBool,
}

/// Permit to probe the workload's Pods for readiness (single-flight). Dropping it releases it.
#[derive(Debug)]
pub(super) struct ProbePermit(Arc<WorkloadState>);

/// Unserved demand of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueDemand {
    /// Requests that are queued now.
    pub(super) waiting: usize,
    /// Time integral of the queue length.
    pub(super) waited: Duration,
    /// Requests refused for want of room.
    pub(super) refused: u64,
    /// Requests refused because the workload is Failed and has no Pod, for a reason that a ready Pod would end.
    pub(super) halted: u64,
}

impl WorkloadState {
    /// Creates the state of a workload without requests.
    pub(super) fn new(kind: RoutedKind, namespace: &str, name: &str, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            full_name: format!("{}/{namespace}/{name}", kind.name().to_lowercase()).into(),
            invoked_at: AtomicI64::new(0),
            budget: RetryBudget::default(),
            models: AnsweringModels::default(),
            pending: PendingReport::default(),
            reporting: UsageReporting::default(),
            tokens: TokenCache::default(),
            slots: SlotQueue::new(clock),
            refused: AtomicU64::new(0),
            halted: AtomicU64::new(0),
            in_flight: AtomicBool::new(false),
        })
    }

    /// Counts a request that was refused for want of room.
    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts a request that was refused because the workload is Failed, for a reason that a ready Pod would end.
    pub(super) fn count_halted(&self) {
        self.halted.fetch_add(1, Relaxed);
    }

    /// Returns the token by which `keys` vouch for a caller. `is_approver`: the caller may approve calls of the workload's tools.
    pub(super) fn token(&self, user: Option<&Arc<str>>, is_approver: bool, keys: &Arc<KeySet>) -> Arc<str> {
        self.tokens.get_or_sign(user, is_approver, keys, Instant::now(), || self.full_name.to_string())
    }

    /// Records that a response below 500 was relayed.
    pub(super) fn record_invocation(&self) {
        self.invoked_at.fetch_max(Timestamp::now().as_millisecond(), Relaxed);
    }

    /// Acquires the permit to probe the Pods, unless a task holds it (single-flight).
    pub(super) fn begin_probe(self: &Arc<Self>) -> Option<ProbePermit> {
        let begins = !self.in_flight.load(Relaxed) && !self.in_flight.swap(true, Relaxed);
        begins.then(|| ProbePermit(self.clone()))
    }

    /// Returns the unserved demand up to now.
    pub(super) fn demand(&self) -> QueueDemand {
        let (waiting, waited) = self.slots.backlog();
        let (refused, halted) = (self.refused.load(Relaxed), self.halted.load(Relaxed));
        QueueDemand { waiting, waited, refused, halted }
    }
}

impl ProbePermit {
    /// Returns the workload whose Pods are probed.
    pub(super) fn workload(&self) -> &Arc<WorkloadState> {
        &self.0
    }
}

impl Drop for ProbePermit {
    fn drop(&mut self) {
        self.0.in_flight.store(false, Relaxed);
    }
}
