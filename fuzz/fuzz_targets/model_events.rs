//! Fuzzes the framing of a model's streamed response: see `runner::models::model_events`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::runner::models::model_events(bytes));
