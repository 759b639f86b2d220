//! Reference runtime of agents and flows: one HTTP server that turns a message, or a prompt's variables, into a model's
//! answer, with tool calls in between.
//!
//! An agent is configured by `CORAIL_*` variables and flows by mounted files: that is the contract between the operator
//! and any runtime image. Variables are read before the port is bound, files before the first connection is accepted.
//! An invalid variable ends the process; a valid one that cannot be served (a model provider), and any file, leaves the
//! process alive and not ready, so that the reason can be fetched from `/readyz`.

mod a2a;
mod agent;
mod approval_metrics;
mod approval_report;
mod approvals;
mod caller;
mod chat_reply;
mod claimed_writes;
mod common_routes;
mod config;
mod content;
mod conversations;
mod database;
mod flow;
mod knowledge;
mod metrics;
mod mode;
mod models;
mod openai_api;
mod parking;
mod process_attributes;
mod resume;
mod secret_values;
mod serve;
mod server;
mod sse;
mod tool_server;
mod tools;
mod traces;
mod turn;
mod turn_event;
mod usage;
mod variables;

#[cfg(test)]
mod tests;

pub use config::RunnerConfig;
pub use flow::FlowSettings;
pub use metrics::example_metrics;
pub use mode::Mode;
pub use serve::{ServeError, run};
pub use tool_server::serve_tools;
pub use variables::{ConfigError, LogFormat, help};

/// Lookup of environment variables; tests pass a table instead of the process environment.
type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;
