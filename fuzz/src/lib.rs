//! Checks parsers of untrusted bytes. `make fuzz` runs all targets, `hack/fuzz TARGET` runs one.
//!
//! Each check takes any bytes and panics if a property does not hold. The parsers are included file by file, because the whole
//! product takes long to build. Those of `http1` are its own, in its module `entries`, because its tests run them too.

// The included files have tests, which run in their own packages.
#![cfg(not(test))]

pub mod bridge;
pub mod gateway;
pub mod prompts;
pub mod runner;
