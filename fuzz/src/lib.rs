//! Checks parsers of untrusted bytes. `make fuzz` runs all targets, `hack/fuzz TARGET` runs one.
//!
//! Each check takes any bytes and panics if a property does not hold. The parsers are included file by file, because the whole
//! product takes long to build. The checks of `http1` are in `src/http1/entries.rs`, because tests run them too.

// The included files have tests, which run in their own packages.
#![cfg(not(test))]

pub mod bridge;
#[path = "../../src/http1/entries.rs"]
pub mod entries;
pub mod gateway;
#[path = "../../src/http1/mod.rs"]
pub mod http1;
pub mod prompts;
pub mod runner;
