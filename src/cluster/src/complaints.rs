//! Rate limit of log lines about the API server: one WARN per cause and minute, however many watches meet it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::error::RequestError;

/// How long one line is enough.
const EVERY: Duration = Duration::from_secs(60);

/// What was complained of lately.
#[derive(Debug, Default)]
pub(super) struct Complaints(Mutex<HashMap<String, Complaint>>);

#[derive(Debug)]
struct Complaint {
    said: Instant,
    /// How often it came again without a line.
    kept: u64,
}

impl Complaints {
    /// Whether this failure deserves a line: how often its cause came again since the last line, or `None` for a failure whose
    /// cause was told within the last minute.
    pub(super) fn is_due(&self, error: &RequestError) -> Option<u64> {
        let now = Instant::now();
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        causes.retain(|_, complaint| now.duration_since(complaint.said) < EVERY * 10);
        let fresh = Complaint { said: now, kept: 0 };
        match causes.get_mut(&error.cause()) {
            Some(known) if now.duration_since(known.said) < EVERY => {
                known.kept += 1;
                None
            }
            Some(known) => Some(std::mem::replace(known, fresh).kept),
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
        let complaints = Complaints::default();
        assert_eq!(complaints.is_due(&away("watch Agent", "connection refused")), Some(0));
        for what in ["watch Agent", "watch Tool", "list Flow"] {
            assert_eq!(complaints.is_due(&away(what, "connection refused")), None, "{what}");
        }
        assert_eq!(complaints.is_due(&away("watch Tool", "connection reset")), Some(0), "another cause");
        advance(EVERY).await;
        assert_eq!(complaints.is_due(&away("watch Tool", "connection refused")), Some(3));
        assert_eq!(complaints.is_due(&away("watch Tool", "connection refused")), None);
    }
}
