//! Reads the head of a response: see `entries::response_head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::entries::response_head(bytes));
