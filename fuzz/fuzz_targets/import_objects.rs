//! Fuzzes the import of manifests: see `imports::import_objects`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::imports::import_objects(bytes));
