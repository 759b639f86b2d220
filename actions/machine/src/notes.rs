//! Collects an action's notes about a step besides its result: the wait, the reason and facts for the trace.
//!
//! Notes hold no times and no counters: the status of a wait is composed from them, and a restart must compose the same bytes
//! again.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::EventText;

/// Wait of a step, as the action describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Reason for the condition, a CamelCase word.
    pub reason: &'static str,
    /// One sentence that names what the step waits for.
    pub message: String,
    /// True if a user has to act: written at once, and reported in an Event.
    pub needs_user: bool,
    /// Time that the wait may last before it is written to the status.
    pub quiet_period: Duration,
    /// True if a Pod has a problem: reported in an Event.
    pub pod_problem: bool,
    /// True if nothing at all is written during the quiet period, not even the changes of the action.
    pub defers_writes: bool,
    /// Condition that is set to False, with the reason and message of the wait, when the wait is written.
    pub false_condition: Option<&'static str>,
}

impl Wait {
    /// Creates a wait for something that will happen without a user's action.
    pub(super) fn new(reason: &'static str, message: impl Into<String>, patience: Duration) -> Self {
        let message = message.into();
        Self {
            reason,
            message,
            needs_user: false,
            quiet_period: patience,
            pod_problem: false,
            defers_writes: false,
            false_condition: None,
        }
    }
}

/// Default quiet period: a shorter wait is not written.
const QUIET_PERIOD: Duration = Duration::from_secs(2);

/// Notes of one step.
///
/// Invariant: at most one wait is kept, the first one, or the first one that needs a user.
#[derive(Debug, Default)]
pub struct StepNotes(Mutex<NoteSet>);

/// Content of [`StepNotes`].
#[derive(Debug, Default)]
pub(super) struct NoteSet {
    pub(super) wait: Option<Wait>,
    pub(super) reason: Option<String>,
    pub(super) requeue_after: Option<Duration>,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) event: Option<EventText>,
}

impl StepNotes {
    /// Notes that the step waits for something that will happen without a user's action.
    pub fn waiting(&self, reason: &'static str, message: impl Into<String>) {
        self.waiting_up_to(QUIET_PERIOD, reason, message);
    }

    /// Notes a wait as [`StepNotes::waiting`] does, with a longer quiet period because such a wait is usual.
    pub fn waiting_up_to(&self, patience: Duration, reason: &'static str, message: impl Into<String>) {
        self.set(Wait::new(reason, message, patience));
    }

    /// Notes a wait as [`StepNotes::waiting`] does, for a problem of a Pod that is worth an Event.
    pub fn problem(&self, reason: &'static str, message: impl Into<String>) {
        self.set(Wait { pod_problem: true, ..Wait::new(reason, message, QUIET_PERIOD) });
    }

    /// Defers all writes of the step until the wait has lasted for `patience`, because such a wait is usual.
    pub fn defer_writes(&self, patience: Duration) {
        if let Some(wait) = &mut self.lock().wait {
            (wait.quiet_period, wait.defers_writes) = (patience, true);
        }
    }

    /// Notes that the step waits for something that a user has to provide or repair.
    pub fn blocked(&self, reason: &'static str, message: impl Into<String>) {
        self.set(Wait { needs_user: true, ..Wait::new(reason, message, Duration::ZERO) });
    }

    /// Sets this condition to False when the wait is written, because the wait is about what the condition stands for.
    pub fn false_condition(&self, condition: &'static str) {
        if let Some(wait) = &mut self.lock().wait {
            wait.false_condition = Some(condition);
        }
    }

    /// Removes a wait of this reason that was noted before more was known.
    pub fn withdraw(&self, reason: &str) {
        let mut notes = self.lock();
        notes.wait = notes.wait.take().filter(|wait| wait.reason != reason);
    }

    /// Adds a fact to the trace, such as `applied` = `Deployment/a`.
    pub fn fact(&self, key: &'static str, value: impl Into<String>) {
        self.lock().facts.push((key, value.into()));
    }

    /// Sets the reason of a transition, one sentence for history and trace; without it the edge's own text is used.
    pub fn reason(&self, reason: impl Into<String>) {
        self.lock().reason = Some(reason.into());
    }

    /// Emits a Warning Event once the step has written something, unless the write itself is worth a warning.
    pub fn warn(&self, reason: &str, message: impl Into<String>) {
        self.lock().event = Some(EventText { warning: true, reason: reason.to_owned(), message: message.into() });
    }

    /// Requests a requeue after this delay without a watch event; the shortest delay requested counts.
    pub fn requeue_after(&self, after: Duration) {
        let mut notes = self.lock();
        notes.requeue_after = Some(notes.requeue_after.map_or(after, |before| before.min(after)));
    }

    /// Takes all notes.
    pub(super) fn take(&self) -> NoteSet {
        std::mem::take(&mut *self.lock())
    }

    /// Keeps the first wait, unless a later one needs a user and the first one does not.
    fn set(&self, wait: Wait) {
        let mut notes = self.lock();
        if notes.wait.as_ref().is_none_or(|first| wait.needs_user && !first.needs_user) {
            notes.wait = Some(wait);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, NoteSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
