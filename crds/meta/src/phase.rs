//! Says what a phase is, and what it means to a client that waits for the object.

use std::{fmt, hash::Hash};

/// What a phase says about the object, in kstatus terms. The machine derives `Ready`, `Reconciling` and `Stalled`
/// from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseClass {
    /// On the way to what the spec asks for.
    Progressing,
    /// What the spec asks for is there.
    Settled,
    /// Stopped because the spec asks for no replicas.
    Stopped,
    /// Not there, and time alone may not mend it.
    Failed,
    /// Being deleted.
    Terminating,
}

/// A phase of some kind's life cycle.
pub trait Phase: Copy + Eq + Hash + Ord + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Every phase, in the order in which a healthy object sees them.
    const ALL: &'static [Self];
    /// The phase of an object that was just admitted.
    const FIRST: Self;
    /// The phase into which the rule Fail leads.
    const FAILED: Self;
    /// The phase of an object that is being deleted; `None` for kinds without a finalizer.
    const TERMINATING: Option<Self>;

    /// The name as stored in `status.phase`.
    fn as_str(self) -> &'static str;
    /// What the phase says about the object.
    fn class(self) -> PhaseClass;
    /// What is done in it, as a sentence, for an object that waits for nothing else.
    fn default_message(self) -> &'static str;
    /// Reads `status.phase`; `None` for a name this build does not know.
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|phase| phase.as_str() == text)
    }
    /// Whether others may judge the object by this phase: it waits for nothing but changes.
    fn is_settled(self) -> bool {
        matches!(self.class(), PhaseClass::Settled | PhaseClass::Stopped | PhaseClass::Failed)
    }
}
