//! Récif runs AI agents on Kubernetes. Everything here does I/O; what to do is decided in the crates `crds` and
//! `actions`.
//!
//! A folder is a room. The first file of a room names on its `//! Uses:` line the rooms it may use; `tests/rooms.rs`
//! refuses any other edge.

pub mod bridge;
pub mod cache;
pub mod cli;
pub mod cluster;
pub mod control_plane;
pub mod controllers;
pub mod gateway;
pub mod http1;
pub mod identity;
pub mod limits;
pub mod mcp;
#[cfg(test)]
#[path = "runner/tests/peers.rs"]
mod peers;
#[cfg(test)]
#[path = "runner/tests/postgres.rs"]
mod postgres;
pub mod proxy;
pub mod runner;
pub mod scaler;
pub mod store;
pub mod telemetry;
pub mod tls;
