//! Access to the Kubernetes API: list and watch with reduced decoding, guarded writes, Events and leader election.
//!
//! Except for the CLI and the tests, no other crate sends requests to the API server.
//!
//! Every object that is read is reduced while it is decoded, so that a thousand agents cost a few megabytes and the
//! bytes of a Secret are never kept. Every request leaves through [`transport`], which holds the deadlines. Writes of
//! the state machine also pass the [`WriteGate`] of the leader election and the crash points of the tests there.

pub mod access;
pub mod apply;
mod backoff;
pub mod binding;
pub mod cache;
mod child_requests;
pub mod client;
pub mod crash;
pub mod custom;
pub mod decode;
pub mod endpoint_slice;
pub mod error;
pub mod events;
mod failure_log;
pub mod last_invocation;
pub mod lease;
pub mod lease_api;
mod list;
pub mod metrics;
mod page;
pub mod patch;
pub mod pod;
pub mod policy;
pub mod resource;
pub mod reviews;
pub mod scale;
pub mod secret;
pub mod store;
#[cfg(test)]
mod testing;
pub mod transport;
pub mod watch;
pub mod watch_health;
pub mod watches;
mod write_gate;

pub use apply::ChildWriter;
pub use events::{EventNote, EventQueue};
pub use lease::LeaderElector;
pub use lease_api::{LeaseApi, LeaseObject};
pub use patch::CustomObjects;
pub use scale::ScaleWriter;
pub use store::{Change, ChangeSource, ObjectMap, ObjectVersion, Versioned};
pub use transport::Transport;
pub use watch::{Watch, WatchSource};
pub use watch_health::{Unlisted, WatchActivity, WatchHealth};
pub use watches::Watches;
pub use write_gate::WriteGate;
