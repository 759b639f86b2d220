//! Fuzzes the gateway's parser of request targets: see `gateway::gateway_path`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::gateway::gateway_path(bytes));
