//! Reconciles every kind of Récif: a generic driver ([`machine`]) and the actions it runs.
//!
//! Actions do I/O only through the traits in [`ports`], so this crate holds no client, and every rule in it can be tested without
//! a cluster.

pub mod agent;
mod allowed_namespaces;
pub mod applied;
pub mod debounce;
pub mod deps;
pub mod discovery;
#[cfg(test)]
mod fake;
pub mod flow;
pub mod flow_set;
pub mod kind;
pub mod mcp_server;
pub mod model;
pub mod plugin_config;
pub mod ports;
pub mod prompt;
pub mod reference;
pub mod references;
pub mod remote_mcp_server;
pub mod render;
mod runtime_notes;
pub mod server_tools;
mod stale;
#[cfg(test)]
mod tests;
pub mod tool;
mod unserved_fallbacks;
pub mod workload;
