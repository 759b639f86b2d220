//! Fuzzes the framing of Bedrock's streamed response: see `runner::models::bedrock::aws_events`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::runner::models::bedrock::aws_events(bytes));
