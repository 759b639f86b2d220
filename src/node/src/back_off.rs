//! The back-off between attempts to run a container: 0.5 s, doubling to 30 s. Pure.

use std::time::Duration;

/// First pause.
const FIRST: Duration = Duration::from_millis(500);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(30);
/// Time that a container has to run for its earlier ends to be forgotten.
const STABLE: Duration = Duration::from_secs(60);

/// Ends of a container in a row.
#[derive(Debug, Default)]
pub(crate) struct BackOff {
    ends: u32,
    problems: u32,
}

impl BackOff {
    /// Counts the end of a container that ran for this time. Returns the pause before the next attempt, and the number of ends.
    pub(crate) fn after(&mut self, ran: Duration) -> (Duration, u32) {
        if ran >= STABLE {
            self.ends = 0;
        }
        self.problems = 0;
        self.ends += 1;
        (pause(self.ends), self.ends)
    }

    /// Counts an attempt that failed before the container ran. Returns the pause before the next one.
    pub(crate) fn of_problem(&mut self) -> Duration {
        self.problems += 1;
        pause(self.problems)
    }
}

fn pause(attempts: u32) -> Duration {
    let factor = 2_u32.saturating_pow(attempts.saturating_sub(1));
    FIRST.saturating_mul(factor).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_until_a_container_has_run_for_a_while() {
        let mut back_off = BackOff::default();
        let mut ends: Vec<_> = (0..8).map(|_| back_off.after(Duration::from_secs(1)).0.as_millis()).collect();
        assert_eq!(ends, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(back_off.of_problem().as_millis(), 500);
        assert_eq!(back_off.of_problem().as_millis(), 1000);
        assert_eq!(back_off.after(Duration::from_secs(60)), (FIRST, 1));
        assert_eq!(back_off.of_problem().as_millis(), 500);
        ends = (0..100).map(|_| back_off.after(Duration::ZERO).0.as_millis()).collect();
        assert_eq!(ends.last(), Some(&30_000));
    }
}
