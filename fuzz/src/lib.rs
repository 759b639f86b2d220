//! The codec alone, for the fuzzer.
//!
//! `cargo +nightly fuzz run request_head` (or `response_head`, `body`, `exchange`) in the folder above, with cargo-fuzz. What is
//! checked is in `src/http1/entries.rs`, which tests run too.

#[path = "../../src/http1/entries.rs"]
pub mod entries;
#[path = "../../src/http1/mod.rs"]
pub mod http1;
