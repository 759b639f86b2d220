//! Common part of every kind of the API, which makes the state machine independent of the kinds: [`Key`], [`Phase`],
//! [`PhasedObject`], the common part of a status ([`CommonStatus`]) and its conditions.

pub mod condition_type;
mod conditions;
mod key;
mod object;
mod phase;
mod raw_conditions;
pub mod reason;
pub mod schema;
mod status;

pub use conditions::{condition, set_condition, update_condition, with_condition};
pub use key::Key;
pub use object::PhasedObject;
pub use phase::{Phase, PhaseClass};
pub use status::{CommonStatus, FIRST_PHASE, Failure, HistoryEntry, UNSET_TIME};

/// Prefix of every label and annotation of the API.
pub const ANNOTATION_PREFIX: &str = "recif.dev/";
