//! A layer-7 fault proxy between a client of ours and the API server (fault injection), and what judges the client under it.
//!
//! A [`Plan`] says which calls meet which fault; every decision is drawn from the seed, the rule and how often that very object was
//! asked for, never from the order in which calls of different objects arrive, so a run can be replayed. [`Faults`] is a tower
//! layer that carries a plan out: around a client in the same process, or inside of a [`Proxy`] before the client of another one.
//! Every call is kept in a [`Log`].

mod call;
mod layer;
mod log;
mod plan;
mod proxy;
mod watch;

pub use call::Call;
pub use layer::{Faults, FaultyBody, Lost};
pub use log::{Entry, Log};
pub use plan::{Fault, Of, Plan, Rule, When};
pub use proxy::Proxy;
