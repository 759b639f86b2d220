//! From changes to steps: what wakes which object, and the queue it waits in. No decision about an object is made here.
//!
//! [`controlled`] is the table: for each kind its objects and children. [`controller`] turns a row into a running
//! controller, [`wake`] says which change concerns whom, [`discovery`] asks servers of tools
//! beside the steps, `bindings` keeps the operator's rights in namespaces of its own, `unknown` holds back steps that would read what was
//! never listed, and [`run`] is the process around them.

mod bindings;
mod controlled;
pub mod controller;
pub mod controllers;
pub mod discovery;
pub mod metrics;
pub mod run;
pub mod scaler;
mod settings;
mod sinks;
mod sync_gate;
pub mod triggers;
pub mod watches;
pub mod workqueue;
