//! Relays a request and its answer: see `http1::entries::exchange`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1::entries::exchange(bytes));
