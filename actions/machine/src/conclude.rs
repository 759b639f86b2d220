//! What follows from the result of a step: stay, move, wait, try again or fail.

use std::time::Duration;

use meta::{Key, Phase, PhasedObject, Standing};

use super::{
    ActionError, ApiError, By, Driver, Next, Rule, StepOutcome, Wait,
    conditions::CRD_OUTDATED,
    driver::{Step, by_others},
    in_words,
    step::{self, Decision, Failed},
    truce::NAMED,
};

/// The longest time between two attempts at something that the API server refuses without our fault.
pub(super) const UNREACHABLE: Duration = Duration::from_secs(5);
const FORBIDDEN: Duration = Duration::from_secs(10);
const NAMESPACE_GOES: Duration = Duration::from_secs(30);

/// The reason of `Ready` while another operator writes the object too.
const CONTESTED: &str = "OtherOperator";

/// The result of a step, sorted by what the driver does about it.
enum Verdict<K> {
    /// Store it.
    Change(K),
    /// Stay; whether there is a wait is in the notes.
    Stay,
    /// Stay and try again; never counted. The last is the longest delay.
    Refused { wait: Wait, after: Option<Duration>, most: Duration },
    /// Based on something that is no longer so: take the newer object.
    Stale,
    /// Try again; counted.
    Attempt(Failed),
    /// Failed for good.
    Fail(Failed),
}

impl<K: PhasedObject, D: Send + Sync + 'static> Driver<K, D> {
    /// Checks what was decided, writes it, tells the sinks and says when to look again.
    pub(super) async fn conclude(&self, mut step: Step<'_, K>) -> Next {
        let (key, cr) = (step.key, step.cr.clone());
        let result = std::mem::replace(&mut step.result, Ok(None));
        match self.judge(&step, result) {
            Verdict::Change(next) => {
                let held_back = step.wait.as_ref().filter(|wait| wait.holds_back && next.phase() == cr.phase());
                if let Some(left) = held_back.and_then(|wait| self.patience_left(&step, wait)) {
                    return self.told(&step, StepOutcome::Waiting, soonest(left, step.recheck));
                }
                self.memory.done_waiting(key);
                let outcome = match step.wait {
                    _ if next.phase() != cr.phase() => StepOutcome::Moved,
                    Some(_) => StepOutcome::Waiting,
                    None => StepOutcome::Acted,
                };
                self.stay_or_move(step, next, outcome, true).await
            }
            Verdict::Stay => {
                let next = cr.as_ref().clone();
                match &step.wait {
                    None => {
                        self.memory.done_waiting(key);
                        self.stay_or_move(step, next, StepOutcome::Idle, true).await
                    }
                    Some(wait) => match self.patience_left(&step, wait) {
                        Some(left) => {
                            self.memory.not_refused(key);
                            self.told(&step, StepOutcome::Waiting, soonest(left, step.recheck))
                        }
                        None => self.stay_or_move(step, next, StepOutcome::Waiting, true).await,
                    },
                }
            }
            Verdict::Refused { wait, after, most } => {
                let refusals = self.memory.refused(key, cr.uid());
                step.recheck = Some(after.unwrap_or_else(|| step::backoff(refusals, cr.uid(), most) / 2));
                let quiet = self.patience_left(&step, &wait);
                step.wait = Some(wait);
                match quiet {
                    Some(left) => self.told(&step, StepOutcome::Retry, soonest(left, step.recheck)),
                    None => self.stay_or_move(step, cr.as_ref().clone(), StepOutcome::Retry, false).await,
                }
            }
            Verdict::Stale => {
                let next = self.stale(&step);
                self.told(&step, StepOutcome::Stale, next)
            }
            Verdict::Attempt(failed) => {
                let failure = cr.machine().and_then(|machine| machine.failure.as_ref());
                let attempts = failure.map_or(0, |failure| failure.attempts) + 1;
                let last = attempts >= step::ATTEMPTS && cr.phase() != Some(K::Phase::FAILED);
                self.failed(step, failed, last).await
            }
            Verdict::Fail(failed) => self.failed(step, failed, true).await,
        }
    }

    fn judge(&self, step: &Step<'_, K>, result: Result<Option<K>, ActionError>) -> Verdict<K> {
        let fail = |reason, message| {
            let retryable = !self.table().not_by_time.contains(&reason);
            Verdict::Fail(Failed { reason, message, retryable, after: None })
        };
        match result {
            Ok(None) => Verdict::Stay,
            Ok(Some(next)) => match self.illegal(&step.cr, &next, step.by) {
                None => Verdict::Change(next),
                Some(defect) => Verdict::Attempt(defect),
            },
            Err(ActionError::Retry { reason, message, after }) => {
                Verdict::Attempt(Failed { reason, message, retryable: true, after })
            }
            Err(ActionError::Terminal { reason, message }) => fail(reason, message),
            Err(ActionError::Api(error)) => match error {
                ApiError::Transient { message, after } => {
                    let wait = Wait::new("ApiServerUnavailable", message, Duration::from_secs(2));
                    self.retry_after(step, after);
                    Verdict::Refused { wait, after, most: UNREACHABLE }
                }
                ApiError::NamespaceTerminating => {
                    let message = "the namespace is being deleted".to_owned();
                    let wait = Wait::new("NamespaceTerminating", message, Duration::from_secs(2));
                    // The deletion of the object itself will wake it.
                    Verdict::Refused { wait, after: Some(NAMESPACE_GOES), most: NAMESPACE_GOES }
                }
                ApiError::Forbidden(message) => {
                    let wait = Wait { missing: true, ..Wait::new("Forbidden", in_words(&message), Duration::ZERO) };
                    Verdict::Refused { wait, after: None, most: FORBIDDEN }
                }
                ApiError::WrongUid(_) | ApiError::Stale | ApiError::NotFound => Verdict::Stale,
                ApiError::SelectorImmutable(message) => fail("SelectorImmutable", in_words(&message)),
                ApiError::Invalid(message) | ApiError::Refused(message) => fail("Refused", in_words(&message)),
            },
        }
    }

    /// Takes no further step of the object before the time is over that the API server named, not even of its deletion. The status
    /// that says so may still be written.
    pub(super) fn retry_after(&self, step: &Step<'_, K>, named: Option<Duration>) {
        if let Some(named) = named {
            self.memory.retry_after(step.key, step.cr.uid(), self.clock.elapsed() + named);
        }
    }

    /// What is wrong with what an action returned, if anything.
    fn illegal(&self, cr: &K, next: &K, by: By) -> Option<Failed> {
        let defect = |reason, message: String| Some(Failed { reason, message, retryable: true, after: None });
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
    async fn stay_or_move(&self, mut step: Step<'_, K>, next: K, outcome: StepOutcome, observed: bool) -> Next {
        self.brake(&mut step, &next);
        let decision = Decision {
            reason: self.reason(&step, &next),
            next,
            by: step.by.as_str(),
            wait: step.wait.clone(),
            failure: None,
            observed,
            dropped: self.dropped.sentence::<K>(),
        };
        let done = step::complete(step.cr.as_ref(), decision, self.table(), self.clock.now(), step.took);
        match (self.write(&step, done, outcome).await, step.recheck) {
            (Next::Idle, Some(recheck)) => Next::After(recheck),
            (Next::After(due), recheck) => soonest(due, recheck),
            (next, _) => next,
        }
    }

    /// Writes a failure: to the failed phase if it is `last` and an edge leads there, else where it stands.
    async fn failed(&self, mut step: Step<'_, K>, mut failed: Failed, last: bool) -> Next {
        let cr = step.cr.clone();
        if is_known(cr.as_ref(), &failed) {
            let refusals = self.memory.refused(step.key, cr.uid());
            let after = step::backoff(refusals, cr.uid(), step::LONGEST_BACKOFF);
            return self.told(&step, StepOutcome::Retry, Next::After(after));
        }
        let leads = |by| self.table().edges.iter().any(|edge| edge.allows(cr.phase(), K::Phase::FAILED, by));
        let moves = last && (leads(By::Rule(Rule::Fail)) || leads(step.by));
        // Where no edge leads to the failed phase, as in Terminating, giving up would leave the object stuck.
        failed.retryable |= !moves && cr.phase() != Some(K::Phase::FAILED);
        let decision = Decision {
            next: if moves { cr.moved_to(K::Phase::FAILED) } else { cr.as_ref().clone() },
            by: step.by.as_str(),
            reason: failed.message.clone(),
            wait: None,
            failure: Some(failed),
            observed: moves,
            dropped: self.dropped.sentence::<K>(),
        };
        self.brake(&mut step, &decision.next);
        let done = step::complete(cr.as_ref(), decision, self.table(), self.clock.now(), step.took);
        self.write(&step, done, if moves { StepOutcome::Failed } else { StepOutcome::Retry }).await
    }

    /// Leaves the object to the operator that wrote it last, and says once that there are two.
    pub(super) async fn spare(&self, mut step: Step<'_, K>, left: Duration) -> Next {
        let cr = step.cr.clone();
        let speaks =
            cr.phase().is_some_and(|phase| matches!(phase.standing(), Standing::Progressing | Standing::Settled));
        step.wait = self.contest(step.key).filter(|_| speaks && !cr.is_deleting() && !is_contested(cr.as_ref()));
        if step.wait.is_some() {
            self.stay_or_move(step, cr.as_ref().clone(), StepOutcome::Waiting, false).await;
        }
        Next::After(left)
    }

    /// That another operator writes the object too. Both say it in the same words, so that neither takes the other's for a change.
    fn contest(&self, key: &Key) -> Option<Wait> {
        let other = self.memory.contest(key, self.clock.elapsed())?;
        let mut both = [self.instance.as_deref()?, other.as_str()];
        both.sort_unstable();
        let message = format!("the operators {} both write it; stop one of them", both.join(" and "));
        Some(Wait { missing: true, ..Wait::new(CONTESTED, message, Duration::ZERO) })
    }

    /// Says what a move is held up by: a CRD that drops what steps are chosen by, too many moves without a cause, or another
    /// operator.
    fn brake(&self, step: &mut Step<'_, K>, next: &K) {
        let cr = &step.cr;
        let stays = next.phase() == cr.phase() && matches!(step.by, By::Action(_));
        // What Pods do not know is said by each of the two of the other's.
        let lesser = step.wait.as_ref().is_none_or(|wait| wait.reason == "UnknownKeys");
        if lesser
            && (!stays || is_contested(cr.as_ref()))
            && let Some(contest) = self.contest(step.key)
        {
            step.wait = Some(contest);
            step.recheck = Some(step.recheck.map_or(NAMED, |usual| usual.min(NAMED)));
        }
        if stays {
            return;
        }
        let (object, world) = (by_others(cr.meta()), || self.outside(cr));
        step.braked = self.memory.is_braked((step.key, cr.uid()), object, world, self.clock.elapsed());
        let said = match self.dropped.sentence::<K>().filter(|_| self.dropped.steers(self.table())) {
            Some(sentence) => Some((CRD_OUTDATED, sentence)),
            None => step.braked.then(|| {
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
            step.wait = Some(Wait { missing: true, ..Wait::new(reason, message, Duration::ZERO) });
        }
    }

    /// Why it moves or waits: the action's words, else the edge's.
    fn reason(&self, step: &Step<'_, K>, next: &K) -> String {
        if let Some(because) = &step.because {
            return because.clone();
        }
        let from = step.cr.phase();
        let edge = next
            .phase()
            .filter(|to| Some(*to) != from)
            .and_then(|to| self.table().edges.iter().find(|edge| edge.allows(from, to, step.by)));
        match (edge, &step.wait) {
            (Some(edge), _) => edge.why.to_owned(),
            (None, Some(wait)) => wait.message.clone(),
            (None, None) => String::new(),
        }
    }

    /// How long the wait is still to be kept quiet; `None`: it is worth a write. A status that speaks of an older
    /// generation is never kept.
    fn patience_left(&self, step: &Step<'_, K>, wait: &Wait) -> Option<Duration> {
        let cr = &step.cr;
        let phase = cr.raw_phase().unwrap_or_default();
        let left = self.memory.patience_left(step.key, cr.uid(), phase, wait, self.clock.elapsed());
        let current = cr.machine().and_then(|machine| machine.observed_generation) == Some(cr.generation());
        (current && !left.is_zero()).then_some(left)
    }
}

/// Whether the object is Failed and says so already: looking again writes nothing.
fn is_known<K: PhasedObject>(cr: &K, failed: &Failed) -> bool {
    let Some(machine) = cr.machine().filter(|_| cr.phase() == Some(K::Phase::FAILED)) else { return false };
    let reason = machine.failure.as_ref().is_some_and(|failure| failure.reason == failed.reason);
    reason && machine.conditions.iter().any(|found| found.type_ == "Ready" && found.message == failed.message)
}

/// Whether `Ready` says that two operators write the object.
fn is_contested<K: PhasedObject>(cr: &K) -> bool {
    cr.machine().is_some_and(|old| old.conditions.iter().any(|it| it.type_ == "Ready" && it.reason == CONTESTED))
}

fn soonest(after: Duration, recheck: Option<Duration>) -> Next {
    Next::After(recheck.map_or(after, |recheck| recheck.min(after)))
}
