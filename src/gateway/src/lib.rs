//! The gateway: one address for every agent and flow. It finds the Pod with the most room, never gives one more than it can
//! take, and streams both ways.
//!
//! Everything that a request needs is in memory: [`routes`] is filled by watches and read without a lock. A request is read
//! by [`connection`], admitted by [`auth`], finds its way through [`path`] and [`routes`], waits for room in [`turn`] if there
//! is none, and is carried by [`relay`]. The process around them is [`process`]; any number of them may run.

mod admin;
mod answer;
mod args;
mod auth;
mod balance;
mod budget;
mod clients;
mod clock;
mod cold_start;
mod connection;
mod endpoints;
mod forward;
mod h2;
mod invocations;
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
mod routes;
mod serve;
mod sessions;
mod state;
mod turn;
mod workload;

#[cfg(test)]
mod tests;

pub use args::GatewayArgs;
pub use clock::Clock;
pub use cluster::endpoint_slice::EndpointState;
pub use endpoints::{Endpoint, Slice};
pub use object::{Halt, Kind, Object};
pub use process::run;
pub use routes::{Route, Routes};
