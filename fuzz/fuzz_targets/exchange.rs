//! Relays a request and its answer: see `entries::exchange`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::entries::exchange(bytes));
