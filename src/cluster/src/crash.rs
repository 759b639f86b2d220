//! Crash points for tests: `--crash-at 3:unacked` ends the process at its third write.
//!
//! A crash test repeats a scenario once for each write and each side of it, and expects the same end every time.

use std::sync::atomic::{AtomicU64, Ordering};

/// On which side of the write the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashSide {
    /// It is never sent.
    Before,
    /// It was applied, but this process never saw the answer.
    Unacked,
    /// The answer was taken.
    After,
}

/// Counts writes and ends the process at one of them.
#[derive(Debug, Default)]
pub struct CrashPoint {
    at: Option<(u64, CrashSide)>,
    count: AtomicU64,
}

impl CrashPoint {
    /// Reads `<n>:{before,unacked,after}`, n from 1.
    ///
    /// # Errors
    /// What is wrong with the text.
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

    /// The number of the write that begins now.
    pub fn begin(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends the process if this is the place.
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
