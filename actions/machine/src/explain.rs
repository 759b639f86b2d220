//! Explains a step to its user: the reason of a transition or wait, and the wait that stands for a delay of the driver.

use std::time::Duration;

use meta::{PhasedObject, reason};

use super::{
    Driver, EdgeOwner, Wait, contention::CONTENTION_REPORTED_FOR, decide::StepDecision, move_backoff::external_digest,
    other_operator::is_contested,
};

impl<K: PhasedObject, D: Send + Sync + 'static> Driver<K, D> {
    /// Sets the wait that explains a delayed transition: a CRD that drops fields that decide on steps, too many transitions
    /// without an outside change (a hot loop), or another operator.
    pub(super) fn apply_move_backoff(&self, step: &mut StepDecision<'_, K>, next: &K) {
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
    pub(super) fn reason(&self, step: &StepDecision<'_, K>, next: &K) -> String {
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
}
