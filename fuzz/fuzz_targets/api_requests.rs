//! Fuzzes the API server in memory by requests: see `apiserver::requests`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::apiserver::requests(bytes));
