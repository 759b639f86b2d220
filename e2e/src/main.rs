//! Scenarios against a real cluster.
fn main() {}
