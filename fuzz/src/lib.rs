//! Checks parsers of untrusted bytes by fuzzing. `make fuzz` runs all targets, `hack/fuzz TARGET` runs one.
//!
//! Each check accepts any bytes and panics if a property does not hold. The parsers are included file by file, because the
//! whole product takes long to build. The checks of `http1` are in its own module `entries`, because its tests run them
//! too. The API server in memory is asked by requests, for it has no other entry.

// The included files have tests, which run in their own packages.
#![cfg(not(test))]

pub mod agents;
pub mod apiserver;
pub mod bridge;
pub mod gateway;
pub mod imports;
pub mod prompts;
pub mod runner;
