//! Leaves an object alone that another operator writes too, and says so in its status. For how long is computed in
//! `contention.rs`.

use std::{sync::PoisonError, time::Duration};

use jiff::{SignedDuration, Timestamp};
use meta::{Key, Phase, PhaseClass, PhasedObject, condition_type, reason};

use super::{Driver, NamespaceReader, Requeue, StepOutcome, Wait, step_decision::StepDecision};

/// Longest time for which the previous leader may go on writing during a handover, and for which clocks may differ.
const HANDOVER: SignedDuration = SignedDuration::from_secs(30);

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
    /// Sets the identity of this operator, its lease as `namespace/name`: an object that another operator wrote last is left
    /// alone for a while.
    pub fn set_instance(&mut self, instance: impl Into<String>) {
        self.instance = Some(instance.into());
    }

    /// Records that this operator is the leader from now on. Until then another operator may rightly have written.
    pub fn start_leading(&self) {
        *self.leading_since.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.now();
        self.retry_state.unconfirm_all();
    }

    /// Records who wrote the object last, and returns how long it is to be left to another operator that writes it, too. A deletion
    /// goes on.
    pub(super) fn observe_contention(&self, key: &Key, cr: &K, now: Duration) -> Duration {
        if cr.is_deleting() {
            return Duration::ZERO;
        }
        match self.other_writer(cr) {
            Some(write) => self.retry_state.written_by_other((key, cr.uid()), write, now),
            None => self.retry_state.contention_left((key, cr.uid()), now),
        }
    }

    /// Returns the other operator that wrote the object last, the number of the last history entry, and whether that entry is
    /// newer than this operator's leadership.
    fn other_writer<'a>(&self, cr: &'a K) -> Option<(&'a str, i64, bool)> {
        let machine = cr.common()?;
        let other = machine.managed_by.as_deref()?;
        let began = *self.leading_since.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = |at: Timestamp| at.duration_since(began) > HANDOVER;
        let (seq, alive) = machine.history.last().map_or((0, false), |entry| (entry.seq, alive(entry.at.0)));
        self.instance.as_deref().is_some_and(|ours| ours != other).then_some((other, seq, alive))
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
    pub(super) fn contention_wait(&self, key: &Key) -> Option<Wait> {
        let other = self.retry_state.contending_operator(key, self.clock.elapsed())?;
        let mut both = [self.instance.as_deref()?, other.as_str()];
        both.sort_unstable();
        let message = format!("the operators {} both write it; stop one of them", both.join(" and "));
        Some(Wait { needs_user: true, ..Wait::new(reason::OTHER_OPERATOR, message, Duration::ZERO) })
    }
}

/// Reports whether `Ready` says that two operators write the object.
pub(super) fn is_contested<K: PhasedObject>(cr: &K) -> bool {
    let ready = cr.common().and_then(|status| status.condition(condition_type::READY));
    ready.is_some_and(|ready| ready.reason == reason::OTHER_OPERATOR)
}
