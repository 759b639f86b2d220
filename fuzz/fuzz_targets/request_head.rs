//! Fuzzes the parser of request heads: see `http1::entries::request_head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1::entries::request_head(bytes));
