//! Reads and rewrites a message of MCP: see `bridge::mcp_message`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::bridge::mcp_message(bytes));
