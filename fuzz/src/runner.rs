//! Checks parsers of the runner.

pub mod models;
pub mod tools;
