//! Fuzzes the parser and the rendering of prompts: see `prompts::prompt`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::prompts::prompt(bytes));
