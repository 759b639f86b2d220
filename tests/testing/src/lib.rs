//! Provides test helpers that several members need. A helper that fails ends its test: everything here panics.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

pub mod bad_requests;
pub mod certificates;
pub mod connection;
pub mod database;
pub mod markdown;
pub mod mcp_server;
pub mod peers;
pub mod postgres;
pub mod tools;
