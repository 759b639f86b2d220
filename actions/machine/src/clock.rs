//! Time as a parameter, so that a test can say what time it is.

use std::{fmt, time::Duration};

use jiff::Timestamp;

/// Where a step reads the time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time, for what is stored in a status.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment, never running backwards, for how long something took or waited.
    fn elapsed(&self) -> Duration;
}

/// The clock of the machine. Under paused tokio time `elapsed` follows tokio's clock.
#[derive(Debug)]
pub struct SystemClock(tokio::time::Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
