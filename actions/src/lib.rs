//! The state machine of every kind: a generic driver ([`machine`]) and the actions it runs.
//!
//! Actions reach the world only through the traits in [`ports`], so this crate holds no client and every rule in it can
//! be tested without a cluster.

pub mod agent;
#[cfg(test)]
mod fake;
pub mod machine;
pub mod ports;
pub mod reference;
pub mod render;
pub mod tool;
pub mod workload;
