//! Fuzzes the parser and the rewriting of MCP messages: see `bridge::mcp_message`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::bridge::mcp_message(bytes));
