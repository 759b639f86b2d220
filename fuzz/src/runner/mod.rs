//! Checks the runner's parsers of untrusted bytes.

pub mod models;
pub mod tools;
