//! Reads the head of a request: see `entries::request_head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::entries::request_head(bytes));
