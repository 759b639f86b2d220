//! Classifies the result of a step by the driver's reaction, and checks that an action keeps to its edges.

use std::time::Duration;

use meta::{PhasedObject, reason};

use super::{
    ActionError, ApiError, Driver, EdgeOwner, NamespaceReader, Wait, attempts::StepFailure, backoff::UNREACHABLE,
    readable_message, step_decision::StepDecision,
};

const FORBIDDEN: Duration = Duration::from_secs(10);
const NAMESPACE_GOES: Duration = Duration::from_secs(30);

/// Result of a step, classified by the driver's reaction.
pub(super) enum Consequence<K> {
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

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
    /// Returns what follows from the result of a step.
    pub(super) fn classify(
        &self,
        step: &StepDecision<'_, K>,
        result: Result<Option<K>, ActionError>,
    ) -> Consequence<K> {
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
}
