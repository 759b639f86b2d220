//! The life of an Agent over the simulated cluster.

mod crash;
mod errors;
mod life;
mod old_keys;
mod scenarios;
mod strangers;
