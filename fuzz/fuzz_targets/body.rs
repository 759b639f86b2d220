//! Cuts the body of a message: see `entries::body`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::entries::body(bytes));
