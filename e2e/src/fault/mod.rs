//! Fault injection on layer 7: a proxy between a client of ours and the API server, and a log with which the tests judge
//! the client.
//!
//! A [`FaultSchedule`] maps requests to faults. Every decision is drawn from the seed, the rule and the number of earlier
//! requests for the same object, never from the order in which requests for different objects arrive, so a run can be
//! replayed. [`FaultLayer`] is a tower layer that applies a schedule: around a client in the same process, or inside of a
//! [`FaultProxy`] for the client of another process. Every call is recorded in a [`CallLog`].

mod body;
mod call;
mod layer;
mod log;
mod proxy;
mod schedule;
mod watch;

pub use body::{ConnectionLostError, FaultBody};
pub use call::ApiCall;
pub use layer::FaultLayer;
pub use log::{CallLog, CallRecord};
pub use proxy::FaultProxy;
pub use schedule::{CallFilter, FaultRule, FaultSchedule, FaultTrigger, ProxyFault};
