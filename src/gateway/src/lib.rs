//! The gateway: one address for every agent and flow. It finds the Pod with the most room, never gives one more than it can
//! take, and streams both ways.
//!
//! Everything that a request needs is in memory: [`routes`] is filled by watches and read without a lock. A request is read
//! by [`connection`], admitted by [`auth`], finds its way through [`path`] and [`routes`], waits for room in [`turn`] if there
//! is none, and is carried by [`relay`]. The process around them is [`process`]; any number of them may run.

mod admin;
mod admission;
mod args;
mod auth;
mod balance;
mod clients;
mod clock;
mod cold_start;
mod connection;
mod endpoints;
mod forward;
mod h2;
mod invocations;
mod local_response;
mod metrics;
mod object;
mod path;
mod peer;
mod pod;
mod process;
mod queue;
mod recheck;
mod relay;
mod request;
mod retry_budget;
mod routes;
mod serve;
mod sessions;
mod state;
mod workload;

#[cfg(test)]
mod tests;

pub use args::GatewayArgs;
pub use clock::Clock;
pub use cluster::endpoint_slice::EndpointState;
pub use endpoints::{PodEndpoint, WorkloadEndpoints};
pub use object::{NoPod, Object, RoutedKind};
pub use process::run;
pub use routes::{Route, Routes};
