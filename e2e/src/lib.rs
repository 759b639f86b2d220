//! Shared code of the programs of this package: the HTTP server of their workloads, the API server's audit log, fault
//! injection between a client and the API server, and the operator as a child process.

pub mod audit;
pub mod fault;
pub mod http1;
pub mod local_operator;

/// Reports whether an item of a list belongs to the third that a text, such as a commit's hash, decides. `at` is its position.
pub fn in_third_of(text: &str, at: usize) -> bool {
    let digest = text.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    at % 3 == digest % 3
}
