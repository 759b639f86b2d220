//! Fuzzes the framing of the output of an MCP server: see `bridge::child_output`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::bridge::child_output(bytes));
