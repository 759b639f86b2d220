//! Counts the calls of an agent that wait for a person, and what became of them, for metrics and for the gateway.

use std::time::Duration;

use crds::pending_calls::DecidedCalls;

use super::{
    agent::Agent, approval_metrics::ApprovalOutcome, caller::CallerContext, models::ToolCall, parking::ClaimedTurn,
};

/// Longest time for which a turn waits until the calls that wait are counted.
const PATIENCE: Duration = Duration::from_secs(1);

impl Agent {
    /// Counts the calls that wait. Where the database does not answer, what was counted before stays.
    pub(crate) async fn count_pending(&self) {
        match tokio::time::timeout(PATIENCE, self.parked.pending()).await {
            Ok(Ok(pending)) => self.tools.approvals().set_pending(pending, self.asks_callers()),
            Ok(Err(error)) => tracing::debug!("calls that wait were not counted: {error}"),
            Err(_) => tracing::debug!("calls that wait were not counted in time"),
        }
    }

    /// Counts the calls of a decision, and notes them for the response to the request of `caller`. A decision that is sent again, for a
    /// turn whose process died, is noted but not counted again.
    pub(crate) fn note_decision(&self, caller: &CallerContext, claimed: &ClaimedTurn) {
        let Some(ruling) = &claimed.ruling else { return };
        let is_approved = |call: &&ToolCall| ruling.check(call).is_ok();
        let (approved, rejected): (Vec<_>, Vec<_>) = claimed.turn.calls.iter().partition(is_approved);
        if claimed.attempts == 1 {
            self.tools.approvals().count(ApprovalOutcome::Approved, approved.len());
            self.tools.approvals().count(ApprovalOutcome::Rejected, rejected.len());
        }
        let approved = approved.iter().map(|call| call.id.as_str());
        let rejected = rejected.iter().map(|call| call.id.as_str());
        caller.account.note_decision(DecidedCalls::new(&claimed.claim.task, approved, rejected));
    }

    /// Counts the calls of a turn that were decided by no one in time, when the first process claims it.
    pub(crate) fn count_expired(&self, claimed: &ClaimedTurn) {
        if claimed.ruling.is_none() && claimed.attempts == 1 {
            self.tools.approvals().count(ApprovalOutcome::Expired, claimed.turn.calls.len());
        }
    }
}
