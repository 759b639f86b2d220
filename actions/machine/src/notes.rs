//! What an action says about a step besides its result: why it waits, and what was missing.
//!
//! Notes hold no times and no counters: the status of a wait is composed from them, and a restart must compose the same
//! bytes again.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A wait, as the action explained it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// A CamelCase word for the condition.
    pub reason: &'static str,
    /// One sentence: what is waited for.
    pub message: String,
    /// Something a person has to bring: said at once, and in an Event.
    pub needs_user: bool,
    /// How long the wait may last before it is worth a write.
    pub quiet_period: Duration,
    /// Something is wrong with the Pods: told in an Event.
    pub pod_problem: bool,
    /// Nothing is written while it is quiet, not even what the action changed.
    pub defers_writes: bool,
    /// The condition that is False, in the words of the wait, once the wait is written.
    pub false_condition: Option<&'static str>,
}

impl Wait {
    /// A wait for something that will come by itself.
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

/// A wait shorter than this is not written.
const QUIET_PERIOD: Duration = Duration::from_secs(2);

/// The notes of one step.
#[derive(Debug, Default)]
pub struct StepNotes(Mutex<NoteSet>);

/// What was said in a step.
#[derive(Debug, Default)]
pub(super) struct NoteSet {
    pub(super) wait: Option<Wait>,
    pub(super) reason: Option<String>,
    pub(super) requeue_after: Option<Duration>,
    pub(super) facts: Vec<(&'static str, String)>,
}

impl StepNotes {
    /// The step waits for something that will come by itself.
    pub fn waiting(&self, reason: &'static str, message: impl Into<String>) {
        self.waiting_up_to(QUIET_PERIOD, reason, message);
    }

    /// As [`StepNotes::waiting`], silent for longer because such a wait is usual.
    pub fn waiting_up_to(&self, patience: Duration, reason: &'static str, message: impl Into<String>) {
        self.set(Wait::new(reason, message, patience));
    }

    /// As [`StepNotes::waiting`], for something that is wrong and that a person wants to be told of.
    pub fn problem(&self, reason: &'static str, message: impl Into<String>) {
        self.set(Wait { pod_problem: true, ..Wait::new(reason, message, QUIET_PERIOD) });
    }

    /// What the step waits for is so usual that until it has lasted this long nothing of the step is written at all.
    pub fn defer_writes(&self, patience: Duration) {
        if let Some(wait) = &mut self.lock().wait {
            (wait.quiet_period, wait.defers_writes) = (patience, true);
        }
    }

    /// The step waits for something that somebody has to bring or mend.
    pub fn blocked(&self, reason: &'static str, message: impl Into<String>) {
        self.set(Wait { needs_user: true, ..Wait::new(reason, message, Duration::ZERO) });
    }

    /// What the step waits for is what this condition stands for: it is False from when the wait is written.
    pub fn false_condition(&self, condition: &'static str) {
        if let Some(wait) = &mut self.lock().wait {
            wait.false_condition = Some(condition);
        }
    }

    /// A wait of this reason is over, which was noted before more was known.
    pub fn withdraw(&self, reason: &str) {
        let mut said = self.lock();
        said.wait = said.wait.take().filter(|wait| wait.reason != reason);
    }

    /// Something worth a word in the trace, such as `applied` = `Deployment/a`.
    pub fn fact(&self, key: &'static str, value: impl Into<String>) {
        self.lock().facts.push((key, value.into()));
    }

    /// Why the step moves, as one sentence for history and trace; without it the edge's own words stand there.
    pub fn reason(&self, reason: impl Into<String>) {
        self.lock().reason = Some(reason.into());
    }

    /// The step is to be repeated after this long although nothing happened; the shortest time said counts.
    pub fn requeue_after(&self, after: Duration) {
        let mut said = self.lock();
        said.requeue_after = Some(said.requeue_after.map_or(after, |before| before.min(after)));
    }

    /// Everything that was said.
    pub(super) fn take(&self) -> NoteSet {
        std::mem::take(&mut *self.lock())
    }

    /// The first wait said counts, unless a later one needs somebody to act.
    fn set(&self, wait: Wait) {
        let mut said = self.lock();
        if said.wait.as_ref().is_none_or(|first| wait.needs_user && !first.needs_user) {
            said.wait = Some(wait);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, NoteSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
