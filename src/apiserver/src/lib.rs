//! A Kubernetes API server in memory: no client, no sockets; time is a parameter.

pub mod schema;
