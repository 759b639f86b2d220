//! Fuzzes the cards and answers of agents: see `agents::agent_answers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::agents::agent_answers(bytes));
