//! What follows from the result of a step: stay, move, wait, try again or fail.

use std::time::Duration;

use meta::{Key, Phase, PhaseClass, PhasedObject};

use super::{
    ActionError, ApiError, Driver, EdgeOwner, Requeue, Rule, StepOutcome, Wait,
    conditions::CRD_OUTDATED,
    contention::CONTENTION_REPORTED_FOR,
    driver::{StepDecision, external_digest},
    readable_message,
    status::{self, StepFailure, StepPlan},
};

/// The longest time between two attempts at something that the API server refuses without our fault.
pub(super) const UNREACHABLE: Duration = Duration::from_secs(5);
const FORBIDDEN: Duration = Duration::from_secs(10);
const NAMESPACE_GOES: Duration = Duration::from_secs(30);

/// The reason of `Ready` while another operator writes the object too.
const CONTESTED: &str = "OtherOperator";

/// The result of a step, sorted by what the driver does about it.
enum Consequence<K> {
    /// Store it.
    Change(K),
    /// Stay; whether there is a wait is in the notes.
    Stay,
    /// Stay and try again; never counted. The last is the longest delay.
    Refused { wait: Wait, after: Option<Duration>, most: Duration },
    /// Based on something that is no longer so: take the newer object.
    Stale,
    /// Try again; counted.
    Attempt(StepFailure),
    /// Failed for good.
    Fail(StepFailure),
}

impl<K: PhasedObject, D: Send + Sync + 'static> Driver<K, D> {
    /// Checks what was decided, writes it, tells the sinks and says when to look again.
    pub(super) async fn conclude(&self, mut step: StepDecision<'_, K>) -> Requeue {
        let (key, cr) = (step.key, step.cr.clone());
        let result = std::mem::replace(&mut step.result, Ok(None));
        match self.classify(&step, result) {
            Consequence::Change(next) => {
                let held_back = step.wait.as_ref().filter(|wait| wait.defers_writes && next.phase() == cr.phase());
                if let Some(left) = held_back.and_then(|wait| self.quiet_left(&step, wait)) {
                    return self.emit_unwritten(&step, StepOutcome::Waiting, soonest(left, step.recheck));
                }
                self.retry_state.done_waiting(key);
                let outcome = match step.wait {
                    _ if next.phase() != cr.phase() => StepOutcome::Moved,
                    Some(_) => StepOutcome::Waiting,
                    None => StepOutcome::Acted,
                };
                self.stay_or_move(step, next, outcome, true).await
            }
            Consequence::Stay => {
                let next = cr.as_ref().clone();
                match &step.wait {
                    None => {
                        self.retry_state.done_waiting(key);
                        self.stay_or_move(step, next, StepOutcome::Idle, true).await
                    }
                    Some(wait) => match self.quiet_left(&step, wait) {
                        Some(left) => {
                            self.retry_state.clear_refusals(key);
                            self.emit_unwritten(&step, StepOutcome::Waiting, soonest(left, step.recheck))
                        }
                        None => self.stay_or_move(step, next, StepOutcome::Waiting, true).await,
                    },
                }
            }
            Consequence::Refused { wait, after, most } => {
                let refusals = self.retry_state.count_refusal(key, cr.uid());
                step.recheck = Some(after.unwrap_or_else(|| status::backoff(refusals, cr.uid(), most) / 2));
                let quiet = self.quiet_left(&step, &wait);
                step.wait = Some(wait);
                match quiet {
                    Some(left) => self.emit_unwritten(&step, StepOutcome::Retry, soonest(left, step.recheck)),
                    None => self.stay_or_move(step, cr.as_ref().clone(), StepOutcome::Retry, false).await,
                }
            }
            Consequence::Stale => {
                let next = self.requeue_stale(&step);
                self.emit_unwritten(&step, StepOutcome::Stale, next)
            }
            Consequence::Attempt(failed) => {
                let failure = cr.common().and_then(|machine| machine.failure.as_ref());
                let attempts = failure.map_or(0, |failure| failure.attempts) + 1;
                let last = attempts >= status::ATTEMPTS && cr.phase() != Some(K::Phase::FAILED);
                self.failed(step, failed, last).await
            }
            Consequence::Fail(failed) => self.failed(step, failed, true).await,
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
                    let wait = Wait::new("ApiServerUnavailable", message, Duration::from_secs(2));
                    self.retry_after(step, after);
                    Consequence::Refused { wait, after, most: UNREACHABLE }
                }
                ApiError::NamespaceTerminating => {
                    let message = "the namespace is being deleted".to_owned();
                    let wait = Wait::new("NamespaceTerminating", message, Duration::from_secs(2));
                    // The deletion of the object itself will wake it.
                    Consequence::Refused { wait, after: Some(NAMESPACE_GOES), most: NAMESPACE_GOES }
                }
                ApiError::Forbidden(message) => {
                    let wait =
                        Wait { needs_user: true, ..Wait::new("Forbidden", readable_message(&message), Duration::ZERO) };
                    Consequence::Refused { wait, after: None, most: FORBIDDEN }
                }
                ApiError::WrongUid(_) | ApiError::Stale | ApiError::NotFound => Consequence::Stale,
                ApiError::SelectorImmutable(message) => fail("SelectorImmutable", readable_message(&message)),
                ApiError::Invalid(message) | ApiError::Refused(message) => fail("Refused", readable_message(&message)),
            },
        }
    }

    /// Takes no further step of the object before the time is over that the API server named, not even of its deletion. The status
    /// that says so may still be written.
    pub(super) fn retry_after(&self, step: &StepDecision<'_, K>, named: Option<Duration>) {
        if let Some(named) = named {
            self.retry_state.retry_after(step.key, step.cr.uid(), self.clock.elapsed() + named);
        }
    }

    /// What is wrong with what an action returned, if anything.
    fn check_edge(&self, cr: &K, next: &K, by: EdgeOwner) -> Option<StepFailure> {
        let defect = |reason, message: String| Some(StepFailure { reason, message, retryable: true, after: None });
        if !cr.same_spec(next) {
            return defect(
                "SpecChangedByAction",
                format!("{by} changed the spec, which is the user's; please report it"),
            );
        }
        let Some(to) = next.phase() else {
            return defect("IllegalEdge", format!("{by} returned an object without a phase; please report it"));
        };
        let same = cr.phase() == Some(to);
        if same || self.table().edges.iter().any(|edge| edge.allows(cr.phase(), to, by)) {
            return None;
        }
        let from = cr.raw_phase().unwrap_or("nothing");
        defect("IllegalEdge", format!("{by} may not move from {from} to {to}; please report it"))
    }

    /// Writes a step that did not fail. `observed`: it came to the end of what it does about this generation.
    async fn stay_or_move(
        &self,
        mut step: StepDecision<'_, K>,
        next: K,
        outcome: StepOutcome,
        observed: bool,
    ) -> Requeue {
        self.apply_move_backoff(&mut step, &next);
        let decision = StepPlan {
            reason: self.reason(&step, &next),
            next,
            by: step.owner.as_str(),
            wait: step.wait.clone(),
            failure: None,
            observed,
            dropped: self.dropped.sentence::<K>(),
        };
        let done = status::complete_status(step.cr.as_ref(), decision, self.table(), self.clock.now(), step.took);
        match (self.commit(&step, done, outcome).await, step.recheck) {
            (Requeue::OnChange, Some(recheck)) => Requeue::After(recheck),
            (Requeue::After(due), recheck) => soonest(due, recheck),
            (next, _) => next,
        }
    }

    /// Writes a failure: to the failed phase if it is `last` and an edge leads there, else where it stands.
    async fn failed(&self, mut step: StepDecision<'_, K>, mut failed: StepFailure, last: bool) -> Requeue {
        let cr = step.cr.clone();
        if is_recorded(cr.as_ref(), &failed) {
            let refusals = self.retry_state.count_refusal(step.key, cr.uid());
            let after = status::backoff(refusals, cr.uid(), status::LONGEST_BACKOFF);
            return self.emit_unwritten(&step, StepOutcome::Retry, Requeue::After(after));
        }
        let leads = |by| self.table().edges.iter().any(|edge| edge.allows(cr.phase(), K::Phase::FAILED, by));
        let moves = last && (leads(EdgeOwner::Rule(Rule::Fail)) || leads(step.owner));
        // Where no edge leads to the failed phase, as in Terminating, giving up would leave the object stuck.
        failed.retryable |= !moves && cr.phase() != Some(K::Phase::FAILED);
        let decision = StepPlan {
            next: if moves { cr.moved_to(K::Phase::FAILED) } else { cr.as_ref().clone() },
            by: step.owner.as_str(),
            reason: failed.message.clone(),
            wait: None,
            failure: Some(failed),
            observed: moves,
            dropped: self.dropped.sentence::<K>(),
        };
        self.apply_move_backoff(&mut step, &decision.next);
        let done = status::complete_status(cr.as_ref(), decision, self.table(), self.clock.now(), step.took);
        self.commit(&step, done, if moves { StepOutcome::Failed } else { StepOutcome::Retry }).await
    }

    /// Leaves the object to the operator that wrote it last, and says once that there are two.
    pub(super) async fn yield_to_other_writer(&self, mut step: StepDecision<'_, K>, left: Duration) -> Requeue {
        let cr = step.cr.clone();
        let speaks =
            cr.phase().is_some_and(|phase| matches!(phase.class(), PhaseClass::Progressing | PhaseClass::Settled));
        step.wait =
            self.contention_wait(step.key).filter(|_| speaks && !cr.is_deleting() && !is_contested(cr.as_ref()));
        if step.wait.is_some() {
            self.stay_or_move(step, cr.as_ref().clone(), StepOutcome::Waiting, false).await;
        }
        Requeue::After(left)
    }

    /// That another operator writes the object too. Both say it in the same words, so that neither takes the other's for a change.
    fn contention_wait(&self, key: &Key) -> Option<Wait> {
        let other = self.retry_state.contending_operator(key, self.clock.elapsed())?;
        let mut both = [self.instance.as_deref()?, other.as_str()];
        both.sort_unstable();
        let message = format!("the operators {} both write it; stop one of them", both.join(" and "));
        Some(Wait { needs_user: true, ..Wait::new(CONTESTED, message, Duration::ZERO) })
    }

    /// Says what a move is held up by: a CRD that drops what steps are chosen by, too many moves without a cause, or another
    /// operator.
    fn apply_move_backoff(&self, step: &mut StepDecision<'_, K>, next: &K) {
        let cr = &step.cr;
        let stays = next.phase() == cr.phase() && matches!(step.owner, EdgeOwner::Action(_));
        // What Pods do not know is said by each of the two of the other's.
        let lesser = step.wait.as_ref().is_none_or(|wait| wait.reason == "UnknownKeys");
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
        let (object, world) = (external_digest(cr.meta()), || self.dependency_digest(cr));
        step.backed_off =
            self.retry_state.exceeds_move_limit((step.key, cr.uid()), object, world, self.clock.elapsed());
        let said = match self.dropped.sentence::<K>().filter(|_| self.dropped.affects_decisions(self.table())) {
            Some(sentence) => Some((CRD_OUTDATED, sentence)),
            None => step.backed_off.then(|| {
                let from = cr.raw_phase().unwrap_or_default();
                let to = next.raw_phase().unwrap_or_default();
                let why = self.reason(step, next);
                let message = format!(
                    "it moves on and on although nothing outside changed, at last from {from} to {to} ({why}); it goes on \
                     ever more slowly"
                );
                ("Oscillating", message)
            }),
        };
        if let Some((reason, message)) = said.filter(|_| step.wait.is_none()) {
            step.wait = Some(Wait { needs_user: true, ..Wait::new(reason, message, Duration::ZERO) });
        }
    }

    /// Why it moves or waits: the action's words, else the edge's.
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

    /// How long the wait is still to be kept quiet; `None`: it is worth a write. A status that speaks of an older
    /// generation is never kept.
    fn quiet_left(&self, step: &StepDecision<'_, K>, wait: &Wait) -> Option<Duration> {
        let cr = &step.cr;
        let phase = cr.raw_phase().unwrap_or_default();
        let left = self.retry_state.quiet_left(step.key, cr.uid(), phase, wait, self.clock.elapsed());
        let current = cr.common().and_then(|machine| machine.observed_generation) == Some(cr.generation());
        (current && !left.is_zero()).then_some(left)
    }
}

/// Whether the object is Failed and says so already: looking again writes nothing.
fn is_recorded<K: PhasedObject>(cr: &K, failed: &StepFailure) -> bool {
    let Some(machine) = cr.common().filter(|_| cr.phase() == Some(K::Phase::FAILED)) else { return false };
    let reason = machine.failure.as_ref().is_some_and(|failure| failure.reason == failed.reason);
    reason && machine.conditions.iter().any(|found| found.type_ == "Ready" && found.message == failed.message)
}

/// Whether `Ready` says that two operators write the object.
fn is_contested<K: PhasedObject>(cr: &K) -> bool {
    cr.common().is_some_and(|old| old.conditions.iter().any(|it| it.type_ == "Ready" && it.reason == CONTESTED))
}

fn soonest(after: Duration, recheck: Option<Duration>) -> Requeue {
    Requeue::After(recheck.map_or(after, |recheck| recheck.min(after)))
}
