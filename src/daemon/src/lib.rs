//! Process framework: life cycle and tasks, logs, the admin port (health, readiness, metrics), the metrics that every process
//! has, the limit of open files, ids, and TLS towards clients.

pub mod admin;
pub mod ids;
pub mod limits;
pub mod logs;
pub mod metrics;
pub mod process;
pub mod runtime;
pub mod tls;
