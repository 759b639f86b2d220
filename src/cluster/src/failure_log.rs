//! Rate limit of log lines about the API server: one WARN per cause and minute, however many watches fail for it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::error::RequestError;

/// Shortest time between two lines about the same cause.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Causes that were logged lately.
#[derive(Debug, Default)]
pub(super) struct FailureLog(Mutex<HashMap<String, LoggedFailure>>);

#[derive(Debug)]
struct LoggedFailure {
    logged_at: Instant,
    /// Number of repetitions since then, without a line.
    suppressed: u64,
}

impl FailureLog {
    /// Returns how many failures of this cause were suppressed since its last line, if this failure deserves a line. Returns `None` if its
    /// cause was logged within the last minute.
    pub(super) fn should_log(&self, error: &RequestError) -> Option<u64> {
        let now = Instant::now();
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        causes.retain(|_, complaint| now.duration_since(complaint.logged_at) < LOG_EVERY * 10);
        let fresh = LoggedFailure { logged_at: now, suppressed: 0 };
        match causes.get_mut(&error.cause()) {
            Some(known) if now.duration_since(known.logged_at) < LOG_EVERY => {
                known.suppressed += 1;
                None
            }
            Some(known) => Some(std::mem::replace(known, fresh).suppressed),
            None => {
                causes.insert(error.cause(), fresh);
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn away(what: &str, cause: &str) -> RequestError {
        RequestError::Transport { what: what.into(), cause: cause.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cause_is_told_once_a_minute_whatever_met_it() {
        let complaints = FailureLog::default();
        assert_eq!(complaints.should_log(&away("watch Agent", "connection refused")), Some(0));
        for what in ["watch Agent", "watch Tool", "list Flow"] {
            assert_eq!(complaints.should_log(&away(what, "connection refused")), None, "{what}");
        }
        assert_eq!(complaints.should_log(&away("watch Tool", "connection reset")), Some(0), "another cause");
        advance(LOG_EVERY).await;
        assert_eq!(complaints.should_log(&away("watch Tool", "connection refused")), Some(3));
        assert_eq!(complaints.should_log(&away("watch Tool", "connection refused")), None);
    }
}
