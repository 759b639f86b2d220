//! The reference runtime of agents and flows: one HTTP server that turns a message, or a prompt's variables, into a
//! model's answer, calling tools on the way.
//!
//! What it is comes from `CORAIL_*` variables for an agent and from mounted files for flows, because that is the contract
//! between the operator and any runtime image. They are read before a port is bound. A variable that cannot be read ends
//! the process; one that can be read but not served (a model provider), and any file, leaves it alive and not ready, so
//! that the reason can be fetched.

mod a2a;
mod agent;
mod caller;
mod common_routes;
mod config;
mod conversations;
mod database;
mod flow;
mod knowledge;
mod metrics;
mod mode;
mod models;
mod openai_api;
mod serve;
mod server;
mod sse;
mod tool_server;
mod tools;
mod turn;
mod turn_event;

#[cfg(test)]
mod tests;

pub use config::{ConfigError, LogFormat, RunnerConfig, help};
pub use flow::FlowSettings;
pub use mode::Mode;
pub use serve::{ServeError, run};
pub use tool_server::serve_tools;

/// Looks up an environment variable; tests pass a table instead of the process environment.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;
