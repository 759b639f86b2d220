//! HTTP gateway: one address in front of every agent and flow. Balances requests over the Pods of a workload by power
//! of two choices, keeps to each Pod's concurrency cap, and streams in both directions.
//!
//! All state that a request needs is in memory: watches fill [`routes`], and requests read it without a lock. A request
//! is parsed by [`connection`], authorized by [`auth`], resolved by [`path`] and [`routes`], queued by [`admission`]
//! while no Pod has room, and relayed by [`relay`]. [`process`] starts and drains the process. Any number of replicas
//! may run.

mod admin;
mod admission;
mod answering_models;
mod args;
mod audit;
mod auth;
mod balance;
mod clients;
mod clock;
mod cold_start;
mod connection;
mod counter_slots;
mod endpoints;
mod example_metrics;
mod forward;
mod h2;
mod invocations;
mod limits;
mod local_response;
mod memory;
mod meter;
mod meters;
mod metrics;
mod model_tokens;
mod object;
mod path;
mod peer;
mod pending_report;
mod pod;
mod process;
mod queue;
mod recheck;
mod record;
mod relay;
mod request;
mod request_record;
mod retry_budget;
mod root;
mod routed_kind;
mod routes;
mod serve;
mod sessions;
mod slots;
mod spool;
mod state;
mod traces;
mod usage_reporting;
mod workload;

#[cfg(test)]
mod tests;

pub use args::{FlagError, GatewayArgs};
pub use clock::Clock;
pub use cluster::endpoint_slice::EndpointState;
pub use endpoints::{PodEndpoint, WorkloadEndpoints};
pub use example_metrics::example_metrics;
pub use limits::{CostBudgets, RateLimits, TokenBudgets};
pub use object::{Listing, NoPod, Object, RoutedKind};
pub use process::{Gateway, GatewayError, Listeners, RequestCount, prepare, run, serve};
pub use routes::{Route, Routes};
pub use serve::bind;
