//! The phases of the kinds, and what a phase means to somebody who waits for the object.
//!
//! There are two life cycles: a *workload* ends in Pods, a *reference* is only checked and then used by others. The
//! status stores a phase as a plain string, so that a phase written by a newer build survives a round trip; these
//! enums are how this build reads it.

use std::{fmt, hash::Hash};

/// What a phase says about the object, in kstatus terms. The machine derives `Ready`, `Reconciling` and `Stalled`
/// from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
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
    fn standing(self) -> Standing;
    /// What is done in it, as a sentence, for an object that waits for nothing else.
    fn doing(self) -> &'static str;
    /// Reads `status.phase`; `None` for a name this build does not know.
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|phase| phase.as_str() == text)
    }
    /// Whether others may judge the object by this phase: it waits for nothing but changes.
    fn is_settled(self) -> bool {
        matches!(self.standing(), Standing::Settled | Standing::Stopped | Standing::Failed)
    }
}

macro_rules! phases {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $standing:ident, $doing:literal);+ $(;)? }
     terminating: $terminating:expr, failed: $failed:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl Phase for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            const FIRST: Self = Self::Pending;
            const FAILED: Self = Self::$failed;
            const TERMINATING: Option<Self> = $terminating;

            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }
            fn standing(self) -> Standing {
                match self { $(Self::$variant => Standing::$standing),+ }
            }
            fn doing(self) -> &'static str {
                match self { $(Self::$variant => $doing),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

phases! {
    /// The life of a kind that runs Pods.
    WorkloadPhase {
        /// New, or its spec changed; not yet looked at.
        Pending => Progressing, "it is new or its spec changed, and is about to be judged";
        /// Waiting for everything the spec refers to.
        Resolving => Progressing, "what it refers to is being looked up";
        /// Writing configuration.
        Rendering => Progressing, "its configuration is being written";
        /// Waiting for Pods.
        Deploying => Progressing, "its Pods are being brought to what the spec asks for";
        /// Serving.
        Running => Settled, "it serves";
        /// Not serving, and it will not mend itself without a cause.
        Failed => Failed, "the status does not say why it failed";
        /// Stopped at zero replicas.
        Terminated => Stopped, "spec.replicas is 0";
        /// Being deleted.
        Terminating => Terminating, "its Pods are being ended";
    }
    terminating: Some(Self::Terminating), failed: Failed
}

phases! {
    /// The life of a kind that others refer to.
    ReferencePhase {
        /// New, or its spec changed; not yet looked at.
        Pending => Progressing, "it is new or its spec changed, and is about to be judged";
        /// Waiting for everything the spec refers to.
        Resolving => Progressing, "what it refers to is being looked up";
        /// May be used.
        Available => Settled, "it may be used";
        /// Must not be used, for the reason in the condition.
        Error => Failed, "the status does not say what is wrong with it";
    }
    terminating: None, failed: Error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_this_build_does_not_know_reads_as_none() {
        assert_eq!(WorkloadPhase::parse("Hibernating"), None);
        assert_eq!(WorkloadPhase::parse("Running"), Some(WorkloadPhase::Running));
        assert_eq!(ReferencePhase::parse("Running"), None);
    }

    #[test]
    fn every_phase_round_trips_through_its_name() {
        for phase in WorkloadPhase::ALL {
            assert_eq!(WorkloadPhase::parse(phase.as_str()), Some(*phase));
        }
    }
}
