//! What the programs of this package share: how their servers read requests, the API server's audit log, faults between a client and
//! the API server, and the operator as a process.

pub mod audit;
pub mod fault;
pub mod http1;
pub mod local_operator;
