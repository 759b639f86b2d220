//! What the programs of this package share: how their servers read requests, and the API server's audit log.

pub mod audit;
pub mod http1;
