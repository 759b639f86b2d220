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
    pub missing: bool,
    /// How long the wait may last before it is worth a write.
    pub patience: Duration,
    /// Something is wrong with the Pods: told in an Event.
    pub trouble: bool,
    /// Nothing is written while it is quiet, not even what the action changed.
    pub holds_back: bool,
    /// The condition that is False, in the words of the wait, once the wait is written.
    pub unmet: Option<&'static str>,
}

impl Wait {
    /// A wait for something that will come by itself.
    pub(super) fn new(reason: &'static str, message: impl Into<String>, patience: Duration) -> Self {
        let message = message.into();
        Self { reason, message, missing: false, patience, trouble: false, holds_back: false, unmet: None }
    }
}

/// A wait shorter than this is not written.
const PATIENCE: Duration = Duration::from_secs(2);

/// The notes of one step.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Said>);

/// What was said in a step.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) wait: Option<Wait>,
    pub(super) because: Option<String>,
    pub(super) look_again: Option<Duration>,
    pub(super) facts: Vec<(&'static str, String)>,
}

impl Notes {
    /// The step waits for something that will come by itself.
    pub fn waiting(&self, reason: &'static str, message: impl Into<String>) {
        self.waiting_up_to(PATIENCE, reason, message);
    }

    /// As [`Notes::waiting`], silent for longer because such a wait is usual.
    pub fn waiting_up_to(&self, patience: Duration, reason: &'static str, message: impl Into<String>) {
        self.set(Wait::new(reason, message, patience));
    }

    /// As [`Notes::waiting`], for something that is wrong and that a person wants to be told of.
    pub fn trouble(&self, reason: &'static str, message: impl Into<String>) {
        self.set(Wait { trouble: true, ..Wait::new(reason, message, PATIENCE) });
    }

    /// What the step waits for is so usual that until it has lasted this long nothing of the step is written at all.
    pub fn hold_back(&self, patience: Duration) {
        if let Some(wait) = &mut self.lock().wait {
            (wait.patience, wait.holds_back) = (patience, true);
        }
    }

    /// The step waits for something that somebody has to bring or mend.
    pub fn missing(&self, reason: &'static str, message: impl Into<String>) {
        self.set(Wait { missing: true, ..Wait::new(reason, message, Duration::ZERO) });
    }

    /// What the step waits for is what this condition stands for: it is False from when the wait is written.
    pub fn unmet(&self, condition: &'static str) {
        if let Some(wait) = &mut self.lock().wait {
            wait.unmet = Some(condition);
        }
    }

    /// A wait of this reason is over, which was noted before more was known.
    pub fn withdraw(&self, reason: &str) {
        let mut said = self.lock();
        said.wait = said.wait.take().filter(|wait| wait.reason != reason);
    }

    /// Something worth a word in the trace, such as `applied` = `Deployment/a`.
    pub fn note(&self, key: &'static str, value: impl Into<String>) {
        self.lock().facts.push((key, value.into()));
    }

    /// Why the step moves, as one sentence for history and trace; without it the edge's own words stand there.
    pub fn because(&self, reason: impl Into<String>) {
        self.lock().because = Some(reason.into());
    }

    /// The step is to be repeated after this long although nothing happened; the shortest time said counts.
    pub fn look_again(&self, after: Duration) {
        let mut said = self.lock();
        said.look_again = Some(said.look_again.map_or(after, |before| before.min(after)));
    }

    /// Everything that was said.
    pub(super) fn take(&self) -> Said {
        std::mem::take(&mut *self.lock())
    }

    /// The first wait said counts, unless a later one needs somebody to act.
    fn set(&self, wait: Wait) {
        let mut said = self.lock();
        if said.wait.as_ref().is_none_or(|first| wait.missing && !first.missing) {
            said.wait = Some(wait);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
