//! Operator as a child process, next to a cluster without a node.

pub mod operator;
pub mod process;
pub mod ready_marker;
