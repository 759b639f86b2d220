//! Frames a process: logs, the admin port (health, readiness, metrics), the limit of open files, and TLS towards clients.

pub mod admin;
pub mod limits;
pub mod logs;
pub mod tls;
