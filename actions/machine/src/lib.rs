//! The state machine, for any kind: it could be its own library.
//!
//! A kind brings its phases, one table of [`Edge`]s and an ordered list of [`Action`]s. The [`Driver`] takes one step
//! at a time: newest object → rules → first matching action → edge check → one guarded write → sinks. Nothing is kept
//! in memory between steps that a restart would miss; what a step needs, it observes again.

mod action;
mod clock;
mod commit;
mod conditions;
mod contention;
mod driver;
mod dropped_fields;
mod edge;
mod error;
mod messages;
mod move_backoff;
mod notes;
mod patch;
mod plan;
mod registry;
mod retry_state;
mod sinks;
mod status;
mod table;
#[cfg(test)]
mod toy;

pub use action::{Action, Context, ObjectClient};
pub use clock::{Clock, SystemClock};
pub use driver::{Driver, Requeue, external_digest};
pub use edge::{Edge, EdgeFrom, EdgeOwner, Rule};
pub use error::{ActionError, ApiError};
pub use messages::readable_message;
pub use notes::{StepNotes, Wait};
pub use registry::{Registry, TableError};
pub use retry_state::remove_and_shrink;
pub use sinks::{EventText, PhaseTrace, Sink, StepOutcome, StepRecord};
pub use status::{RECHECK, is_due};
pub use table::Table;
