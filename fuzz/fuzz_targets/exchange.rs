//! Fuzzes the forwarding of a request and its response: see `http1::entries::exchange`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1::entries::exchange(bytes));
