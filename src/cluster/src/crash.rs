//! Crash points for tests: `--crash-at 3:unacked` ends the process at its third write.
//!
//! A crash test repeats a scenario once for each write and each side of it, and expects the same final state every
//! time.

use std::sync::atomic::{AtomicU64, Ordering};

/// Side of the write on which the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashSide {
    /// The write is never sent.
    Before,
    /// The write was sent and answered, but this process never saw the response.
    Unacked,
    /// The response was taken in.
    After,
}

/// Counter of writes that ends the process at one of them.
#[derive(Debug, Default)]
pub struct CrashPoint {
    at: Option<(u64, CrashSide)>,
    count: AtomicU64,
}

impl CrashPoint {
    /// Parses `<n>:{before,unacked,after}`, n from 1.
    ///
    /// # Errors
    /// The expected form of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("--crash-at {text}: expected <n>:before, <n>:unacked or <n>:after");
        let (n, side) = text.split_once(':').ok_or_else(wrong)?;
        let side = match side {
            "before" => CrashSide::Before,
            "unacked" => CrashSide::Unacked,
            "after" => CrashSide::After,
            _ => return Err(wrong()),
        };
        let n = n.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?;
        Ok(Self { at: Some((n, side)), count: AtomicU64::new(0) })
    }

    /// Counts a write that begins, and returns its number.
    pub fn begin(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends the process if this is the crash point.
    pub fn pass(&self, write: u64, side: CrashSide) {
        if self.at == Some((write, side)) {
            tracing::error!(write, ?side, "crash point reached");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_point_names_a_write_and_a_side() {
        assert_eq!(CrashPoint::parse("3:unacked").unwrap().at, Some((3, CrashSide::Unacked)));
        for wrong in ["", "3", "0:before", "x:after", "3:later"] {
            assert!(CrashPoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
