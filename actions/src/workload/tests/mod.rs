//! The life of an Agent over the simulated cluster.

mod crash;
mod life;
mod scenarios;
