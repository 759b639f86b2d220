//! `recif dev` as a user has it: real processes, files that are saved, signals.

#![cfg(feature = "local")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod command;
mod files;
mod guards;
mod harness;
mod life;
mod load;
mod ports;
mod samples;
mod trouble;
