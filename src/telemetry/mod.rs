//! What the process says about itself: logs, metrics, health.
//!
//! Uses: –

pub mod http;
pub mod logs;
pub mod steps;
