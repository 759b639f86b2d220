//! Cuts the answer of a model into its pieces: see `runner::models::model_events`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::runner::models::model_events(bytes));
