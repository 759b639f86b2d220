//! Operator: turns changes of objects into reconcile steps, through one workqueue per kind. No decision about an object is made here.
//!
//! [`controlled`] binds the kinds to their informer caches. [`controller`] turns a kind into a running controller, [`triggers`] decides
//! which change enqueues which object, [`discovery`] queries MCP servers for their tools beside the steps, [`bindings`] keeps the
//! operator's rights in namespaces of its own, [`sync_gate`] holds back steps that would read a kind that was never listed, [`scaler`] sets
//! the number of Pods by the load, [`prepare`] reads the flags, and [`run`] is the process around them.

pub mod args;
mod bindings;
mod controlled;
pub mod controller;
pub mod controllers;
pub mod discovery;
mod example_metrics;
mod leader_tasks;
pub mod metrics;
mod object_metrics;
pub mod prepare;
pub mod run;
pub mod scaler;
mod settings;
mod sinks;
mod spans;
mod sync_gate;
mod time_to_running;
pub mod triggers;
pub mod watches;
pub mod workqueue;

pub use example_metrics::example_metrics;
