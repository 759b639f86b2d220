//! Metrics of calls that a person has to approve, and the report of those that wait in the headers of responses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderName, HeaderValue};
use crds::pending_calls::{PENDING_HEADER, PendingCalls};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Header of a response with the calls that wait.
const RESPONSE_HEADER: HeaderName = HeaderName::from_static(PENDING_HEADER);

/// What became of a call that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApprovalOutcome {
    /// A person approved it.
    Approved,
    /// A person rejected it.
    Rejected,
    /// It was decided by no one in time.
    Expired,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Metrics of the calls of an agent that wait, and what is known of these. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ApprovalMetrics {
    pending: Gauge,
    outcomes: Family<OutcomeLabels, Counter>,
    /// Calls that wait, as last counted; `None`: they were never counted, or no tool asks and none has waited since this process began.
    latest: Arc<Mutex<Option<PendingCalls>>>,
}

impl ApprovalMetrics {
    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Calls of tools that wait for a person, of all replicas that share a database";
        registry.register("approvals_pending", help, self.pending.clone());
        let help = "Calls of tools that waited for a person, by outcome: approved, rejected or expired";
        registry.register("approvals", help, self.outcomes.clone());
    }

    /// Counts calls that do not wait any more.
    pub(crate) fn count(&self, outcome: ApprovalOutcome, calls: usize) {
        let outcome = match outcome {
            ApprovalOutcome::Approved => "approved",
            ApprovalOutcome::Rejected => "rejected",
            ApprovalOutcome::Expired => "expired",
        };
        if calls > 0 {
            self.outcomes.get_or_create(&OutcomeLabels { outcome }).inc_by(u64::try_from(calls).unwrap_or(u64::MAX));
        }
    }

    /// Sets what waits, unless something newer is known. `may_ask`: a tool of the agent asks, so that responses say so if nothing waits.
    pub(crate) fn set_pending(&self, pending: PendingCalls, may_ask: bool) {
        let mut latest = self.latest();
        if !may_ask && latest.is_none() && pending.calls == 0 {
            return;
        }
        let newest = latest.map_or(pending, |known| known.newer(pending));
        *latest = Some(newest);
        self.pending.set(i64::try_from(newest.calls).unwrap_or(i64::MAX));
    }

    /// Returns the header of a response with what waits, if that is known.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let pending = (*self.latest())?;
        Some((RESPONSE_HEADER, HeaderValue::from_str(&pending.to_string()).ok()?))
    }

    fn latest(&self) -> MutexGuard<'_, Option<PendingCalls>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_once_a_call_has_waited_or_a_tool_asks() {
        let told = |metrics: &ApprovalMetrics| metrics.header().map(|(_, value)| value.to_str().unwrap().to_owned());
        let none = |at| PendingCalls { at, ..PendingCalls::default() };
        let one = |at| PendingCalls { calls: 1, since: 2, until: 3, ..none(at) };
        let metrics = ApprovalMetrics::default();
        metrics.set_pending(none(1), false);
        assert_eq!(told(&metrics), None);
        metrics.set_pending(one(5), false);
        assert_eq!(told(&metrics).as_deref(), Some("at=5, calls=1, since=2, until=3"));
        metrics.set_pending(none(4), false);
        assert_eq!((told(&metrics).is_some_and(|text| text.contains("calls=1")), metrics.pending.get()), (true, 1));
        metrics.set_pending(none(6), false);
        assert_eq!((told(&metrics).as_deref(), metrics.pending.get()), (Some("at=6, calls=0"), 0));
        let asks = ApprovalMetrics::default();
        asks.set_pending(none(1), true);
        assert_eq!(told(&asks).as_deref(), Some("at=1, calls=0"));
    }
}
