//! Process framework: life cycle and tasks, logs, the admin port (health, readiness, metrics), the metrics that every process
//! has, the limit of open files, ids, TLS towards clients, and the guard of servers on loopback.

pub mod admin;
pub mod ids;
pub mod limits;
pub mod logs;
pub mod loopback;
pub mod metrics;
pub mod process;
pub mod runtime;
pub mod tls;
