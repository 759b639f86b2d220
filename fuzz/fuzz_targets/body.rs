//! Fuzzes the framing of a message body: see `http1::entries::body`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1::entries::body(bytes));
