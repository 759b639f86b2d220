//! Fuzzes the expansion of an argument in the URL of a tool: see `runner::tools::tool_url`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::runner::tools::tool_url(bytes));
