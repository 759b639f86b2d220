//! Counts the calls of an agent that wait for a person, and what became of them, for metrics and for the gateway.

use std::time::Duration;

use crds::pending_calls::DecidedCalls;

use super::{
    agent::Agent,
    approval_metrics::ApprovalOutcome,
    caller::CallerContext,
    conversations::history::owner_column,
    models::ToolCall,
    parking::{ClaimedTurn, KeptDecision, Ruling},
};

/// Longest time for which a turn waits until the calls that wait are counted.
const PATIENCE: Duration = Duration::from_secs(1);

/// Decision on the calls of a turn.
struct TakenDecision<'a> {
    task: &'a str,
    /// User whose turn it is.
    user: Option<&'a str>,
    /// Number of times that the turn was parked.
    round: u64,
    calls: &'a [ToolCall],
    ruling: &'a Ruling,
}

impl Agent {
    /// Counts the calls that wait. Where the database does not answer, what was counted before stays.
    pub(crate) async fn count_pending(&self) {
        match tokio::time::timeout(PATIENCE, self.parked.pending()).await {
            Ok(Ok(pending)) => self.tools.approvals().set_pending(pending, self.asks_callers()),
            Ok(Err(error)) => tracing::debug!("calls that wait were not counted: {error}"),
            Err(_) => tracing::debug!("calls that wait were not counted in time"),
        }
    }

    /// Notes the decision by which the caller has claimed a turn. That of an approver, with which the user whose turn it is goes on, was
    /// noted as it was taken.
    pub(crate) fn note_claim(&self, caller: &CallerContext, claimed: &ClaimedTurn) {
        let ClaimedTurn { claim, owner, turn, ruling: Some(ruling), attempts, .. } = claimed else { return };
        let (user, round) = (owner.as_deref(), turn.round);
        if !ruling.is_by(&owner_column(&caller.user)) {
            tracing::info!(
                user,
                task = claim.task,
                round,
                "a turn that an approver decided on goes on with its caller"
            );
            return;
        }
        let taken = TakenDecision { task: &claim.task, user, round, calls: &turn.calls, ruling };
        self.note_decision(caller, &taken, *attempts == 1);
    }

    /// Notes a decision that is kept until the caller of its turn comes back.
    pub(crate) async fn note_kept(&self, caller: &CallerContext, task: &str, kept: &KeptDecision) {
        let KeptDecision { waiting, round, calls, ruling, is_new } = kept;
        let taken = TakenDecision { task, user: waiting.user.as_deref(), round: *round, calls, ruling };
        self.note_decision(caller, &taken, *is_new);
        self.count_pending().await;
    }

    /// Logs a decision, counts its calls, and notes them for the response to the request of `caller`. One that is sent again is not
    /// counted again.
    fn note_decision(&self, caller: &CallerContext, taken: &TakenDecision<'_>, is_new: bool) {
        let TakenDecision { task, user, round, calls, ruling } = *taken;
        let ([approved, rejected], approver) = (ruling.tool_names(calls), caller.user.as_deref());
        tracing::info!(user, approver, task, round, approved, rejected, "calls that waited were decided on");
        let is_approved = |call: &&ToolCall| ruling.check(call).is_ok();
        let (approved, rejected): (Vec<_>, Vec<_>) = calls.iter().partition(is_approved);
        if is_new {
            self.tools.approvals().count(ApprovalOutcome::Approved, approved.len());
            self.tools.approvals().count(ApprovalOutcome::Rejected, rejected.len());
        }
        let approved = approved.iter().map(|call| call.id.as_str());
        let rejected = rejected.iter().map(|call| call.id.as_str());
        caller.account.note_decision(DecidedCalls::new(task, approved, rejected));
    }

    /// Counts the calls of a turn that were decided by no one in time, when the first process claims it.
    pub(crate) fn count_expired(&self, claimed: &ClaimedTurn) {
        if claimed.ruling.is_none() && claimed.attempts == 1 {
            self.tools.approvals().count(ApprovalOutcome::Expired, claimed.turn.calls.len());
        }
    }
}
