//! Traits of the phases of a life cycle, and their meaning to a client that waits for the object.

use std::{fmt, hash::Hash};

/// Meaning of a phase for the object, in the terms of
/// [kstatus](https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus). The machine derives `Ready`,
/// `Reconciling` and `Stalled` from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseClass {
    /// On the way to the desired state.
    Progressing,
    /// In the desired state.
    Settled,
    /// Stopped because the spec asks for no replicas.
    Stopped,
    /// Not in the desired state, and time alone may not repair it.
    Failed,
    /// Being deleted.
    Terminating,
}

/// Phase of a kind's life cycle.
pub trait Phase: Copy + Eq + Hash + Ord + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// All phases, in the order in which a healthy object passes them.
    const ALL: &'static [Self];
    /// Phase of an object that was just admitted.
    const FIRST: Self;
    /// Phase to which the rule Fail leads.
    const FAILED: Self;
    /// Phase of an object that is being deleted; `None` for kinds without a finalizer.
    const TERMINATING: Option<Self>;

    /// Returns the name as stored in `status.phase`.
    fn as_str(self) -> &'static str;
    /// Returns the meaning of the phase for the object.
    fn class(self) -> PhaseClass;
    /// Returns a sentence on the work done in the phase, for an object that waits for nothing else.
    fn default_message(self) -> &'static str;
    /// Parses `status.phase`; `None` for a name that this version does not know.
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|phase| phase.as_str() == text)
    }
    /// Reports whether other objects may be judged by this phase: an object in it waits for nothing but changes.
    fn is_settled(self) -> bool {
        matches!(self.class(), PhaseClass::Settled | PhaseClass::Stopped | PhaseClass::Failed)
    }
}
