//! Sidecar proxy of a workload's Pod: enforces the concurrency cap, counts requests in flight, and drains the Pod
//! before it terminates.
//!
//! One task serves one connection. An admitted request holds a slot until its response has ended. The slot is released
//! on drop, whatever happens to the task.

mod admin;
mod callers;
mod config;
mod connection;
mod drain;
mod exposition;
mod hook;
mod load;
mod load_counters;
mod load_text;
mod local_response;
mod metrics;
mod relay;
mod serve;
mod startup;
mod state;
mod upstream;
mod usage;

#[cfg(test)]
mod tests;

pub use config::{ProxyConfig, ProxyConfigError, ReadinessProbe, help};
pub use hook::{HookError, lame_duck};
pub use metrics::example_metrics;
pub use serve::{ServeError, run};
