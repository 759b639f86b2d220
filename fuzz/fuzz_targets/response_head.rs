//! Fuzzes the parser of response heads: see `http1::entries::response_head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1::entries::response_head(bytes));
