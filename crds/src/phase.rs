//! Phases of the kinds.
//!
//! There are two life cycles: a *workload* runs Pods, a *reference* is only validated and then used by other objects.
//! The status stores a phase as a plain string, so that a phase written by a newer version survives a round trip; these
//! enums are the phases that this version knows.

use std::fmt;

use meta::{Phase, PhaseClass};

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
            fn class(self) -> PhaseClass {
                match self { $(Self::$variant => PhaseClass::$standing),+ }
            }
            fn default_message(self) -> &'static str {
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
    /// Phase of a kind that runs Pods.
    WorkloadPhase {
        /// New, or its spec changed; not reconciled yet.
        Pending => Progressing, "it is new or its spec changed, and is about to be validated";
        /// Waiting for everything the spec refers to.
        Resolving => Progressing, "what it refers to is being looked up";
        /// Writing its configuration.
        Rendering => Progressing, "its configuration is being written";
        /// Waiting for Pods.
        Deploying => Progressing, "its Pods are being brought to the state in the spec";
        /// Serving.
        Running => Settled, "it serves";
        /// Not serving, until its cause is gone or a retry is due.
        Failed => Failed, "the status does not say why it failed";
        /// Stopped at zero replicas.
        Terminated => Stopped, "spec.replicas is 0";
        /// Being deleted.
        Terminating => Terminating, "its Pods are being terminated";
    }
    terminating: Some(Self::Terminating), failed: Failed
}

phases! {
    /// Phase of a kind that other objects refer to.
    ReferencePhase {
        /// New, or its spec changed; not reconciled yet.
        Pending => Progressing, "it is new or its spec changed, and is about to be validated";
        /// Waiting for everything the spec refers to.
        Resolving => Progressing, "what it refers to is being looked up";
        /// Ready to be used.
        Available => Settled, "it may be used";
        /// Not to be used, for the reason in its condition.
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
    fn both_life_cycles_begin_with_the_phase_that_the_schema_gives() {
        assert_eq!(WorkloadPhase::FIRST.as_str(), meta::FIRST_PHASE);
        assert_eq!(ReferencePhase::FIRST.as_str(), meta::FIRST_PHASE);
    }

    #[test]
    fn every_phase_round_trips_through_its_name() {
        for phase in WorkloadPhase::ALL {
            assert_eq!(WorkloadPhase::parse(phase.as_str()), Some(*phase));
        }
    }
}
