//! Shared code of the programs of this package: the HTTP server of their workloads, the API server's audit log, fault
//! injection between a client and the API server, and the operator as a child process.

pub mod audit;
pub mod fault;
pub mod http1;
pub mod local_operator;
