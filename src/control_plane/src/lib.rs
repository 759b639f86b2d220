//! Control plane: serves the fleet over REST and as a stream of changes, from an in-memory read model that watches keep up to
//! date.
//!
//! [`fleet`] is the read model. It holds every object once, serialized as it is sent, so that a page is a walk over an index
//! and a copy of bytes, and no request is forwarded to the API server. Possible credentials are masked before an object is
//! kept. [`mirror`] copies the read model into a database, which also keeps the [`spans`] of traces.

mod api;
mod app;
mod args;
mod auth;
pub mod fleet;
mod live;
mod load;
mod metrics;
pub mod mirror;
mod process;
mod related;
mod relay;
mod serve;
mod spans;
mod stream_body;
#[cfg(test)]
mod testing;
mod ui;
mod usage;
mod watches;
mod write_timeout;

pub use args::ControlPlaneArgs;
pub use metrics::example_metrics;
pub use process::{ControlPlaneError, Listeners, run, serve};
pub use relay::GatewayFlagError;
