//! The operator as a process of ours, beside a cluster without a node.

pub mod operator;
pub mod process;
pub mod ready_marker;
