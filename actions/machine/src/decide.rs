//! Decides a step: by a rule of the driver, else by the first action that handles the object. The action runs under its
//! deadline, and its panics are caught.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use meta::{Key, PhasedObject, reason};

use super::{
    Action, ActionError, ApiError, Context, Driver, EdgeOwner, NamespaceReader, StepNotes, Wait, backoff::jitter,
    retry_state::ObjectRetryState, rules::rule, step_decision::StepDecision,
};

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
    /// Decides on the next step: by a rule of the driver, else by the first action that handles the object.
    pub(super) async fn decide<'a>(
        &self,
        key: &'a Key,
        cr: Arc<K>,
    ) -> (StepDecision<'a, K>, Result<Option<K>, ActionError>) {
        let started = self.clock.elapsed();
        let mut step = StepDecision::new(key, cr);
        let result = match rule(step.cr.as_ref(), self.table()) {
            Some((rule, next)) => {
                step.owner = EdgeOwner::Rule(rule);
                Ok(Some(next))
            }
            None => self.run(&mut step).await,
        };
        step.took = self.clock.elapsed().saturating_sub(started);
        (step, result)
    }

    /// Runs the first action that handles the object.
    async fn run(&self, step: &mut StepDecision<'_, K>) -> Result<Option<K>, ActionError> {
        let (action, passed_over) = self.registry.pick(&step.cr);
        step.passed_over = passed_over;
        let Some(action) = action else {
            let phase = step.cr.raw_phase().unwrap_or_default();
            let message = format!("no action handles this object in phase {phase}");
            step.wait = Some(Wait { needs_user: true, ..Wait::new(reason::UNHANDLED, message, Duration::ZERO) });
            return Ok(None);
        };
        let observed = ObjectRetryState {
            retry_state: self.retry_state.clone(),
            key: step.key.clone(),
            uid: step.cr.uid().to_owned(),
        };
        let cx = Context {
            deps: self.deps.clone(),
            clock: self.clock.clone(),
            notes: StepNotes::default(),
            retry_state: observed,
        };
        step.owner = EdgeOwner::Action(action.name());
        let result = run_bounded(action, &cx, step.cr.clone()).await;
        let notes = cx.notes.take();
        let usual = action.recheck(&step.cr).map(|usual| jitter(usual, step.cr.uid()));
        step.recheck = match (notes.requeue_after, usual) {
            (Some(requested), Some(usual)) => Some(requested.min(usual)),
            (requested, usual) => requested.or(usual),
        };
        step.facts = notes.facts.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        step.wait = notes.wait;
        step.reason = notes.reason;
        step.event = notes.event;
        result
    }
}

/// Runs an action under its deadline and catches its panics.
async fn run_bounded<K: PhasedObject, D: Sync>(
    action: &dyn Action<K, D>,
    cx: &Context<D>,
    cr: Arc<K>,
) -> Result<Option<K>, ActionError> {
    let run = AssertUnwindSafe(action.handle(cx, cr)).catch_unwind();
    match tokio::time::timeout(action.deadline(), run).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            let message = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(ActionError::retry(reason::PANIC, format!("{} panicked: {message}; please report it", action.name())))
        }
        Err(_) => {
            let message = format!("{} took longer than {} s", action.name(), action.deadline().as_secs());
            Err(ApiError::Transient { message, after: None }.into())
        }
    }
}
