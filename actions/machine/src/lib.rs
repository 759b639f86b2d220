//! The state machine, for any kind: it could be its own library.
//!
//! A kind brings its phases, one table of [`Edge`]s and an ordered list of [`Action`]s. The [`Driver`] takes one step
//! at a time: newest object → rules → first matching action → edge check → one guarded write → sinks. Nothing is kept
//! in memory between steps that a restart would miss; what a step needs, it observes again.

mod action;
mod brake;
mod clock;
mod conclude;
mod conditions;
mod driver;
mod edge;
mod error;
mod memory;
mod notes;
mod patch;
mod registry;
mod sinks;
mod step;
mod table;
#[cfg(test)]
mod toy;
mod truce;
mod words;
mod write;
mod written;

pub use action::{Action, Context, Objects};
pub use clock::{Clock, SystemClock};
pub use driver::{Driver, Next, by_others};
pub use edge::{At, By, Edge, Rule};
pub use error::{ActionError, ApiError};
pub use memory::remove_and_shrink;
pub use notes::{Notes, Wait};
pub use registry::{BadTable, Registry};
pub use sinks::{Announcement, PhaseTrace, Sink, StepOutcome, StepRecord};
pub use step::{RECHECK, is_due};
pub use table::Table;
pub use words::in_words;
