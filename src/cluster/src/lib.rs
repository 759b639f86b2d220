//! The only room that holds a Kubernetes client: watches, reduced decoding, guarded writes, Events and the lease.
//!
//! Everything that is read is reduced while it is decoded, so that a thousand agents cost a few megabytes and the bytes
//! of a Secret never stay. Everything that is written passes one gate in [`transport`], where the deadline, the lease
//! and the crash points of the tests live.

pub mod access;
pub mod apply;
pub mod binding;
pub mod board;
pub mod cache;
mod child_requests;
pub mod client;
mod complaints;
pub mod crash;
pub mod custom;
pub mod decode;
pub mod endpoint_slice;
pub mod error;
pub mod events;
pub mod lease;
pub mod lease_api;
mod list;
pub mod metrics;
mod page;
pub mod patch;
mod pause;
pub mod pod;
pub mod policy;
pub mod resource;
pub mod reviews;
pub mod scale;
pub mod secret;
pub mod stamp;
pub mod store;
#[cfg(test)]
mod testing;
pub mod transport;
pub mod watch;
pub mod watches;
mod write_gate;

pub use apply::ChildWriter;
pub use board::{Board, Hearing, Unlisted};
pub use events::{EventNote, EventQueue};
pub use lease::Elector;
pub use lease_api::{LeaseApi, LeaseObject};
pub use patch::CustomObjects;
pub use scale::ScaleWriter;
pub use store::{Cause, Change, Head, ObjectMap, Seen};
pub use transport::Transport;
pub use watch::{Source, Watch};
pub use watches::Watches;
pub use write_gate::Authority;
