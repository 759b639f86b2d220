//! The sidecar of a workload's Pod: it takes the requests, lets no more in than the cap, counts what is in flight, and
//! empties the Pod before it goes.
//!
//! One task per connection. A request that is admitted holds a slot until its answer has ended; whatever happens to the
//! task, the slot is given back.

mod admin;
mod callers;
mod config;
mod connection;
mod drain;
mod hook;
mod load;
mod local_response;
mod metrics;
mod relay;
mod serve;
mod startup;
mod state;
mod upstream;

#[cfg(test)]
mod tests;

pub use config::{ProxyConfig, ProxyConfigError, ReadinessProbe, help};
pub use hook::{HookError, lame_duck};
pub use serve::{ServeError, run};
