//! Plans what follows from a decision: stay, move, wait, retry or fail, with the complete status to write and the reason that it
//! gives to the user.

use std::time::Duration;

use meta::{Phase, PhasedObject, reason};

use super::{
    ActionError, Driver, EdgeOwner, NamespaceReader, Requeue, Rule, StepOutcome, Wait,
    attempts::{ATTEMPTS, StepFailure, is_recorded},
    backoff::{LONGEST_BACKOFF, backoff},
    consequence::Consequence,
    contention::CONTENTION_REPORTED_FOR,
    move_backoff::external_digest,
    other_operator::is_contested,
    requeue::soonest,
    status::{StatusInputs, complete_status},
    step_decision::StepDecision,
};

/// Plan of a step: the write, if there is one.
pub(super) enum Plan<K> {
    /// Writes nothing; the sinks get the outcome.
    Unwritten {
        /// Outcome of the step.
        outcome: StepOutcome,
        /// Time of the next step.
        requeue: Requeue,
    },
    /// Writes this object, as far as it differs.
    Write {
        /// The object with its complete status.
        next: K,
        /// Outcome of the step.
        outcome: StepOutcome,
        /// Longest time until the next step.
        recheck: Option<Duration>,
    },
}

impl<K> Plan<K> {
    fn unwritten(outcome: StepOutcome, requeue: Requeue) -> Self {
        Self::Unwritten { outcome, requeue }
    }
}

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
    /// Plans what to write after a decision, and when to reconcile again. It sends nothing; of the driver's state it changes only
    /// what delays later steps.
    pub(super) fn plan(&self, step: &mut StepDecision<'_, K>, result: Result<Option<K>, ActionError>) -> Plan<K> {
        let (key, cr) = (step.key, step.cr.clone());
        match self.classify(step, result) {
            Consequence::Change(next) => {
                let deferred = step.wait.as_ref().filter(|wait| wait.defers_writes && next.phase() == cr.phase());
                if let Some(left) = deferred.and_then(|wait| self.quiet_left(step, wait)) {
                    return Plan::unwritten(StepOutcome::Waiting, soonest(left, step.recheck));
                }
                self.retry_state.done_waiting(key);
                let outcome = match step.wait {
                    _ if next.phase() != cr.phase() => StepOutcome::Moved,
                    Some(_) => StepOutcome::Waiting,
                    None => StepOutcome::Acted,
                };
                self.stay_or_move(step, next, outcome, true)
            }
            Consequence::Stay => {
                let next = cr.as_ref().clone();
                match &step.wait {
                    None => {
                        self.retry_state.done_waiting(key);
                        self.stay_or_move(step, next, StepOutcome::Idle, true)
                    }
                    Some(wait) => match self.quiet_left(step, wait) {
                        Some(left) => {
                            self.retry_state.clear_refusals(key);
                            Plan::unwritten(StepOutcome::Waiting, soonest(left, step.recheck))
                        }
                        None => self.stay_or_move(step, next, StepOutcome::Waiting, true),
                    },
                }
            }
            Consequence::Refused { wait, after, most } => {
                let refusals = self.retry_state.count_refusal(key, cr.uid());
                step.recheck = Some(after.unwrap_or_else(|| backoff(refusals, cr.uid(), most) / 2));
                let quiet = self.quiet_left(step, &wait);
                step.wait = Some(wait);
                match quiet {
                    Some(left) => Plan::unwritten(StepOutcome::Retry, soonest(left, step.recheck)),
                    None => self.stay_or_move(step, cr.as_ref().clone(), StepOutcome::Retry, false),
                }
            }
            Consequence::Stale => Plan::unwritten(StepOutcome::Stale, self.requeue_stale(step)),
            Consequence::Attempt(failed) => {
                let failure = cr.common().and_then(|machine| machine.failure.as_ref());
                let attempts = failure.map_or(0, |failure| failure.attempts) + 1;
                let last = attempts >= ATTEMPTS && cr.phase() != Some(K::Phase::FAILED);
                self.fail(step, failed, last)
            }
            Consequence::Fail(failed) => self.fail(step, failed, true),
        }
    }

    /// Plans the write of a step that did not fail. `observed`: the step completed its work for this generation.
    pub(super) fn stay_or_move(
        &self,
        step: &mut StepDecision<'_, K>,
        next: K,
        outcome: StepOutcome,
        observed: bool,
    ) -> Plan<K> {
        self.apply_move_backoff(step, &next);
        let inputs = StatusInputs {
            reason: step.reason_for(self.table(), &next),
            next,
            by: step.owner.as_str(),
            wait: step.wait.clone(),
            failure: None,
            observed,
        };
        let next = complete_status(step.cr.as_ref(), inputs, self.table(), self.clock.now(), step.took);
        Plan::Write { next, outcome, recheck: step.recheck }
    }

    /// Plans the write of a failure: to the failed phase if it is `last` and an edge leads there, otherwise in the current phase.
    fn fail(&self, step: &mut StepDecision<'_, K>, mut failed: StepFailure, last: bool) -> Plan<K> {
        let cr = step.cr.clone();
        if is_recorded(cr.as_ref(), &failed) {
            let refusals = self.retry_state.count_refusal(step.key, cr.uid());
            let after = backoff(refusals, cr.uid(), LONGEST_BACKOFF);
            return Plan::unwritten(StepOutcome::Retry, Requeue::After(after));
        }
        let leads = |by| self.table().edges.iter().any(|edge| edge.allows(cr.phase(), K::Phase::FAILED, by));
        let moves = last && (leads(EdgeOwner::Rule(Rule::Fail)) || leads(step.owner));
        // Where no edge leads to the failed phase, as in Terminating, giving up would leave the object stuck.
        failed.retryable |= !moves && cr.phase() != Some(K::Phase::FAILED);
        let inputs = StatusInputs {
            next: if moves { cr.moved_to(K::Phase::FAILED) } else { cr.as_ref().clone() },
            by: step.owner.as_str(),
            reason: failed.message.clone(),
            wait: None,
            failure: Some(failed),
            observed: moves,
        };
        self.apply_move_backoff(step, &inputs.next);
        let next = complete_status(cr.as_ref(), inputs, self.table(), self.clock.now(), step.took);
        let outcome = if moves { StepOutcome::Failed } else { StepOutcome::Retry };
        Plan::Write { next, outcome, recheck: None }
    }

    /// Reports in the step whether its transition is one too many without an outside change (a hot loop), which delays the next
    /// step, and sets the wait that explains a delay of the driver: the hot loop, a CRD that drops fields that decide on steps, or
    /// another operator.
    fn apply_move_backoff(&self, step: &mut StepDecision<'_, K>, next: &K) {
        let cr = &step.cr;
        let stays = next.phase() == cr.phase() && matches!(step.owner, EdgeOwner::Action(_));
        // Each of two operators would report the other's keys as unknown to the Pods, so this wait yields.
        let lesser = step.wait.as_ref().is_none_or(|wait| wait.reason == reason::UNKNOWN_KEYS);
        if lesser
            && (!stays || is_contested(cr.as_ref()))
            && let Some(contest) = self.contention_wait(step.key)
        {
            step.wait = Some(contest);
            step.recheck =
                Some(step.recheck.map_or(CONTENTION_REPORTED_FOR, |usual| usual.min(CONTENTION_REPORTED_FOR)));
        }
        if stays {
            return;
        }
        let (object, dependency_digest) = (external_digest(cr.meta()), || self.dependency_digest(cr));
        step.backed_off =
            self.retry_state.exceeds_move_limit((step.key, cr.uid()), object, dependency_digest, self.clock.elapsed());
        let problem = match self.dropped.sentence::<K>().filter(|_| self.dropped.affects_decisions(self.table())) {
            Some(sentence) => Some((reason::CRD_OUTDATED, sentence)),
            None => step.backed_off.then(|| {
                let from = cr.raw_phase().unwrap_or_default();
                let to = next.raw_phase().unwrap_or_default();
                let why = step.reason_for(self.table(), next);
                let message = format!(
                    "it keeps changing phase although nothing outside changed, last from {from} to {to} ({why}); \
                     it continues with growing back-off"
                );
                (reason::OSCILLATING, message)
            }),
        };
        if let Some((reason, message)) = problem.filter(|_| step.wait.is_none()) {
            step.wait = Some(Wait { needs_user: true, ..Wait::new(reason, message, Duration::ZERO) });
        }
    }

    /// Returns the rest of the quiet period of a wait; `None`: it is to be written. A status of an older generation is always
    /// replaced.
    fn quiet_left(&self, step: &StepDecision<'_, K>, wait: &Wait) -> Option<Duration> {
        let cr = &step.cr;
        let phase = cr.raw_phase().unwrap_or_default();
        let left = self.retry_state.quiet_left(step.key, cr.uid(), phase, wait, self.clock.elapsed());
        let current = cr.common().and_then(|machine| machine.observed_generation) == Some(cr.generation());
        (current && !left.is_zero()).then_some(left)
    }
}
