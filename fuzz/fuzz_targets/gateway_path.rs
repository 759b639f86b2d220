//! Reads the target of a request at the gateway: see `gateway::gateway_path`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::gateway::gateway_path(bytes));
