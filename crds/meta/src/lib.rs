//! Holds what every kind of the API has in common, so that the state machine needs to know no kind: [`Key`], [`Phase`],
//! [`PhasedObject`], the common part of a status ([`CommonStatus`]) and its conditions.

mod conditions;
mod key;
mod object;
mod phase;
mod raw_conditions;
pub mod schema;
mod status;

pub use conditions::{SCALED_TO_ZERO, condition, set_condition, update_condition, with_condition};
pub use key::Key;
pub use object::PhasedObject;
pub use phase::{Phase, PhaseClass};
pub use status::{CommonStatus, FIRST_PHASE, Failure, HistoryEntry, UNSET_TIME};

/// What every label and annotation of the API begins with.
pub const ANNOTATION_PREFIX: &str = "recif.dev/";
