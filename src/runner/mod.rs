//! The reference agent runtime: one HTTP server that turns a message into a model's answer, calling tools on the way.
//!
//! Uses: mcp
//!
//! Everything it is comes from `CORAIL_*` variables, because that is the contract between the operator and any
//! runtime image. They are parsed before a port is bound. A value that cannot be read ends the process; a value that
//! can be read but not served yet (a model provider) leaves it alive and not ready, so that the reason can be fetched.

mod a2a;
mod agent;
mod config;
mod conversations;
mod database;
#[allow(dead_code, reason = "flows will use it")]
mod dotprompt;
mod metrics;
mod models;
mod serve;
mod server;
mod shell;
mod sse;
mod tools;
mod turn;

#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError, LogFormat, help};
pub use serve::{ServeError, run};

/// Looks up an environment variable; tests pass a table instead of the process environment.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;
