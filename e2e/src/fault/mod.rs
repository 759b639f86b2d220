//! A layer-7 fault proxy between a client of ours and the API server (fault injection), and what judges the client under it.
//!
//! A [`Plan`] says which calls meet which fault; every decision is drawn from the seed, the rule and how often that very object was
//! asked for, never from the order in which calls of different objects arrive, so a run can be replayed. [`Faults`] is a tower
//! layer that carries a plan out: around a client in the same process, or inside of a [`Proxy`] before the client of another one.
//! Every call is kept in a [`Log`].

mod call;
mod layer;
mod log;
mod proxy;
mod schedule;
mod watch;

pub use call::ApiCall;
pub use layer::{ConnectionLostError, FaultBody, FaultLayer};
pub use log::{CallLog, CallRecord};
pub use proxy::FaultProxy;
pub use schedule::{CallFilter, FaultRule, FaultSchedule, FaultTrigger, ProxyFault};
