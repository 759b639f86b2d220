//! Decides the consequence of a step's result: stay, move, wait, retry or fail.

use std::time::Duration;

use meta::{Key, Phase, PhaseClass, PhasedObject, condition_type, reason};

use super::{
    ActionError, ApiError, Driver, EdgeOwner, Requeue, Rule, StepOutcome, Wait,
    contention::CONTENTION_REPORTED_FOR,
    driver::{StepDecision, external_digest},
    readable_message,
    status::{self, StatusInputs, StepFailure},
};

/// Longest back-off between two attempts at a request that fails without a fault of this program.
pub(super) const UNREACHABLE: Duration = Duration::from_secs(5);
const FORBIDDEN: Duration = Duration::from_secs(10);
const NAMESPACE_GOES: Duration = Duration::from_secs(30);

/// Result of a step, classified by the driver's reaction.
enum Consequence<K> {
    /// Write this object.
    Change(K),
    /// Stay in the phase; the notes say whether the step waits.
    Stay,
    /// Stay and retry; never counted. `most` is the longest delay.
    Refused { wait: Wait, after: Option<Duration>, most: Duration },
    /// Based on an outdated version: take the newer object.
    Stale,
    /// Retry; counted.
    Attempt(StepFailure),
    /// Failed terminally.
    Fail(StepFailure),
}

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

impl<K: PhasedObject, D: Send + Sync + 'static> Driver<K, D> {
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
                step.recheck = Some(after.unwrap_or_else(|| status::backoff(refusals, cr.uid(), most) / 2));
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
                let last = attempts >= status::ATTEMPTS && cr.phase() != Some(K::Phase::FAILED);
                self.fail(step, failed, last)
            }
            Consequence::Fail(failed) => self.fail(step, failed, true),
        }
    }

    fn classify(&self, step: &StepDecision<'_, K>, result: Result<Option<K>, ActionError>) -> Consequence<K> {
        let fail = |reason, message| {
            let retryable = !self.table().not_retryable.contains(&reason);
            Consequence::Fail(StepFailure { reason, message, retryable, after: None })
        };
        match result {
            Ok(None) => Consequence::Stay,
            Ok(Some(next)) => match self.check_edge(&step.cr, &next, step.owner) {
                None => Consequence::Change(next),
                Some(defect) => Consequence::Attempt(defect),
            },
            Err(ActionError::Retry { reason, message, after }) => {
                Consequence::Attempt(StepFailure { reason, message, retryable: true, after })
            }
            Err(ActionError::Terminal { reason, message }) => fail(reason, message),
            Err(ActionError::Api(error)) => match error {
                ApiError::Transient { message, after } => {
                    let wait = Wait::new(reason::API_SERVER_UNAVAILABLE, message, Duration::from_secs(2));
                    self.retry_after(step, after);
                    Consequence::Refused { wait, after, most: UNREACHABLE }
                }
                ApiError::NamespaceTerminating => {
                    let message = "the namespace is being deleted".to_owned();
                    let wait = Wait::new(reason::NAMESPACE_TERMINATING, message, Duration::from_secs(2));
                    // The deletion of the object itself will wake it.
                    Consequence::Refused { wait, after: Some(NAMESPACE_GOES), most: NAMESPACE_GOES }
                }
                ApiError::Forbidden(message) => {
                    let wait = Wait {
                        needs_user: true,
                        ..Wait::new(reason::FORBIDDEN, readable_message(&message), Duration::ZERO)
                    };
                    Consequence::Refused { wait, after: None, most: FORBIDDEN }
                }
                ApiError::WrongUid(_) | ApiError::Stale | ApiError::NotFound => Consequence::Stale,
                ApiError::SelectorImmutable(message) => fail(reason::SELECTOR_IMMUTABLE, readable_message(&message)),
                ApiError::Invalid(message) | ApiError::Refused(message) => {
                    fail(reason::REFUSED, readable_message(&message))
                }
            },
        }
    }

    /// Delays the next step of the object until the time that the API server named (`Retry-After`), even a step of its deletion.
    /// The status that reports it may still be written.
    pub(super) fn retry_after(&self, step: &StepDecision<'_, K>, named: Option<Duration>) {
        if let Some(named) = named {
            self.retry_state.retry_after(step.key, step.cr.uid(), self.clock.elapsed() + named);
        }
    }

    /// Returns the defect in an action's result, if there is one.
    fn check_edge(&self, cr: &K, next: &K, by: EdgeOwner) -> Option<StepFailure> {
        let defect = |reason, message: String| Some(StepFailure { reason, message, retryable: true, after: None });
        if !cr.same_spec(next) {
            return defect(
                reason::SPEC_CHANGED_BY_ACTION,
                format!("{by} changed the spec, which is the user's; please report it"),
            );
        }
        let Some(to) = next.phase() else {
            return defect(reason::ILLEGAL_EDGE, format!("{by} returned an object without a phase; please report it"));
        };
        let same = cr.phase() == Some(to);
        if same || self.table().edges.iter().any(|edge| edge.allows(cr.phase(), to, by)) {
            return None;
        }
        let from = cr.raw_phase().unwrap_or("nothing");
        defect(reason::ILLEGAL_EDGE, format!("{by} may not move from {from} to {to}; please report it"))
    }

    /// Plans the write of a step that did not fail. `observed`: the step completed its work for this generation.
    fn stay_or_move(&self, step: &mut StepDecision<'_, K>, next: K, outcome: StepOutcome, observed: bool) -> Plan<K> {
        self.apply_move_backoff(step, &next);
        let inputs = StatusInputs {
            reason: self.reason(step, &next),
            next,
            by: step.owner.as_str(),
            wait: step.wait.clone(),
            failure: None,
            observed,
        };
        let next = status::complete_status(step.cr.as_ref(), inputs, self.table(), self.clock.now(), step.took);
        Plan::Write { next, outcome, recheck: step.recheck }
    }

    /// Plans the write of a failure: to the failed phase if it is `last` and an edge leads there, otherwise in the current phase.
    fn fail(&self, step: &mut StepDecision<'_, K>, mut failed: StepFailure, last: bool) -> Plan<K> {
        let cr = step.cr.clone();
        if is_recorded(cr.as_ref(), &failed) {
            let refusals = self.retry_state.count_refusal(step.key, cr.uid());
            let after = status::backoff(refusals, cr.uid(), status::LONGEST_BACKOFF);
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
        let next = status::complete_status(cr.as_ref(), inputs, self.table(), self.clock.now(), step.took);
        let outcome = if moves { StepOutcome::Failed } else { StepOutcome::Retry };
        Plan::Write { next, outcome, recheck: None }
    }

    /// Leaves the object to the operator that wrote it last, and writes once that there are two.
    pub(super) async fn yield_to_other_writer(&self, mut step: StepDecision<'_, K>, left: Duration) -> Requeue {
        let cr = step.cr.clone();
        let speaks =
            cr.phase().is_some_and(|phase| matches!(phase.class(), PhaseClass::Progressing | PhaseClass::Settled));
        step.wait =
            self.contention_wait(step.key).filter(|_| speaks && !cr.is_deleting() && !is_contested(cr.as_ref()));
        if step.wait.is_some() {
            let plan = self.stay_or_move(&mut step, cr.as_ref().clone(), StepOutcome::Waiting, false);
            self.commit(&step, plan).await;
        }
        Requeue::After(left)
    }

    /// Returns the wait that reports another operator. Both operators word it alike, so that neither takes it for a change.
    fn contention_wait(&self, key: &Key) -> Option<Wait> {
        let other = self.retry_state.contending_operator(key, self.clock.elapsed())?;
        let mut both = [self.instance.as_deref()?, other.as_str()];
        both.sort_unstable();
        let message = format!("the operators {} both write it; stop one of them", both.join(" and "));
        Some(Wait { needs_user: true, ..Wait::new(reason::OTHER_OPERATOR, message, Duration::ZERO) })
    }

    /// Sets the wait that explains a delayed transition: a CRD that drops fields that decide on steps, too many transitions
    /// without an outside change (a hot loop), or another operator.
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
                let why = self.reason(step, next);
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

    /// Returns the reason of a transition or wait: the action's text, else the edge's.
    fn reason(&self, step: &StepDecision<'_, K>, next: &K) -> String {
        if let Some(because) = &step.reason {
            return because.clone();
        }
        let from = step.cr.phase();
        let edge = next
            .phase()
            .filter(|to| Some(*to) != from)
            .and_then(|to| self.table().edges.iter().find(|edge| edge.allows(from, to, step.owner)));
        match (edge, &step.wait) {
            (Some(edge), _) => edge.why.to_owned(),
            (None, Some(wait)) => wait.message.clone(),
            (None, None) => String::new(),
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

/// Reports whether the object is Failed and its status says so already, so that nothing is to be written.
fn is_recorded<K: PhasedObject>(cr: &K, failed: &StepFailure) -> bool {
    let Some(machine) = cr.common().filter(|_| cr.phase() == Some(K::Phase::FAILED)) else { return false };
    let reason = machine.failure.as_ref().is_some_and(|failure| failure.reason == failed.reason);
    reason && machine.condition(condition_type::READY).is_some_and(|ready| ready.message == failed.message)
}

/// Reports whether `Ready` says that two operators write the object.
fn is_contested<K: PhasedObject>(cr: &K) -> bool {
    let ready = cr.common().and_then(|status| status.condition(condition_type::READY));
    ready.is_some_and(|ready| ready.reason == reason::OTHER_OPERATOR)
}

pub(super) fn soonest(after: Duration, recheck: Option<Duration>) -> Requeue {
    Requeue::After(recheck.map_or(after, |recheck| recheck.min(after)))
}
