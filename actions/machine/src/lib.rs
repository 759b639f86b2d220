//! Implements the state machine that reconciles the objects of any kind; the crate does not depend on the kinds.
//!
//! A kind brings its phases, one table of [`Edge`]s and an ordered list of [`Action`]s. The [`Driver`] runs one step at a time,
//! on the newest object: decide (a rule, else the first action that handles it) → plan (the result is classified, the edge checked,
//! the status completed) → commit (one guarded write, then the sinks). No decision depends on memory between steps: each step
//! observes again what it needs, so a restart loses nothing but delays.
//!
//! # Example
//!
//! A kind from its phases to its first reconcile: a lamp that is lit once it has power. The code above `main` is the module `example`,
//! which the examples of the items use too.
//!
//! ```
#![doc = include_str!("example.rs")]
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), machine::TableError> {
//!     use machine::{Driver, Registry, Requeue, SystemClock};
//!
//!     let lamp = Lamp::new("desk", 40);
//!     let key = lamp.key();
//!     let objects = Arc::new(OneLamp::new(lamp));
//!     let power = Arc::new(PowerSupply::default());
//!     power.set(true);
//!     let registry = Registry::new(TABLE, vec![Arc::new(Switch)], |_, power: &PowerSupply| power.is_on().into())?;
//!     let driver = Driver::new(registry, power, objects.clone(), Arc::new(SystemClock::default()), vec![]);
//!     let phase = || objects.newest(&key).and_then(|lamp| lamp.phase());
//!
//!     assert_eq!(driver.reconcile(&key).await, Requeue::Now);
//!     assert_eq!(phase(), Some(LampPhase::Pending), "the rule Admit");
//!     assert_eq!(driver.reconcile(&key).await, Requeue::Now);
//!     assert_eq!(phase(), Some(LampPhase::Lit), "the action switch");
//!     assert_eq!(driver.reconcile(&key).await, Requeue::OnChange, "nothing is left to do");
//!     Ok(())
//! }
//! ```

// The example names the crate as its users do.
extern crate self as machine;

mod action;
mod attempts;
mod backoff;
mod clock;
mod commit;
mod conditions;
mod consequence;
mod contention;
mod decide;
mod driver;
mod dropped_fields;
mod edge;
mod error;
#[doc(hidden)]
pub mod example;
mod history;
mod lost_write;
mod messages;
mod move_backoff;
mod notes;
mod other_operator;
mod patch;
mod plan;
mod registry;
mod report;
mod requeue;
mod retry_state;
mod rules;
mod send;
mod sinks;
mod status;
mod step_decision;
mod step_span;
mod table;

pub use action::{Action, Context, NamespaceReader, ObjectClient};
pub use backoff::{RECHECK, is_due};
pub use clock::{Clock, SystemClock};
pub use driver::Driver;
pub use edge::{Edge, EdgeFrom, EdgeOwner, Rule};
pub use error::{ActionError, ApiError};
pub use messages::readable_message;
pub use move_backoff::external_digest;
pub use notes::{StepNotes, Wait};
pub use registry::{Registry, TableError};
pub use requeue::Requeue;
pub use retry_state::remove_and_shrink;
pub use sinks::{EventText, PhaseTrace, Sink, StepOutcome, StepRecord};
pub use step_span::StepSpan;
pub use table::Table;
