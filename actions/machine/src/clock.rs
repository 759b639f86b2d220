//! Abstracts the wall clock and the monotonic clock, so that a test can set the time.

use std::{fmt, time::Duration};

use jiff::Timestamp;

/// Clock of a step.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the wall-clock time, for values in a status.
    fn now(&self) -> Timestamp;
    /// Returns the monotonic time since a fixed moment, for durations and delays.
    fn elapsed(&self) -> Duration;
}

/// Clock of the operating system. With tokio's paused time `elapsed` follows tokio's clock.
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
