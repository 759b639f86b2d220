//! [Exponential back-off with jitter](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/) of a watch, by the cause
//! of the failure.
//!
//! An API server that does not answer is retried within 2 s, so that its return is noticed. One that answers with 429 or an error of its
//! own is overloaded: it is retried ever less often, at most once in 30 s, and never before the time that it names itself. A missing right
//! is retried every 30 s, an undefined kind every 5 s.

use std::time::Duration;

use backoff::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::error::RequestError;

/// Time in which a missing right or an undefined kind is retried often: it may be granted or defined a moment after the process began.
const GRACE: Duration = Duration::from_secs(10);
/// Delay between attempts while the right is missing.
const FORBIDDEN: Duration = Duration::from_secs(30);
/// Delay between attempts while the kind is not defined.
const UNDEFINED: Duration = Duration::from_secs(5);

/// Cause of a failure, as far as the back-off depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureCause {
    NoAnswer,
    Forbidden,
    Undefined,
    Other,
}

/// Back-off of one watch.
///
/// Invariant: the delays grow only while the cause stays the same; another cause starts them over.
#[derive(Debug)]
pub(super) struct WatchBackoff {
    quick: ExponentialBackoff,
    slow: ExponentialBackoff,
    /// Cause of the last failures in a row, and the time of the first.
    last_cause: Option<(FailureCause, Instant)>,
}

impl Default for WatchBackoff {
    fn default() -> Self {
        // Jitter doubles a delay at most.
        Self { quick: delays(Duration::from_secs(1)), slow: delays(Duration::from_secs(15)), last_cause: None }
    }
}

fn delays(most: Duration) -> ExponentialBackoff {
    let first = Duration::from_millis(100);
    ExponentialBuilder::new().with_min_delay(first).with_max_delay(most).with_jitter().without_max_times().build()
}

impl WatchBackoff {
    /// Returns the delay after this failure.
    pub(super) fn next_delay(&mut self, error: &RequestError) -> Duration {
        let cause = match error.code() {
            None => FailureCause::NoAnswer,
            Some(403) => FailureCause::Forbidden,
            Some(404) => FailureCause::Undefined,
            Some(_) => FailureCause::Other,
        };
        if self.last_cause.is_none_or(|(before, _)| before != cause) {
            *self = Self { last_cause: Some((cause, Instant::now())), ..Self::default() };
        }
        let quick = self.quick.next().unwrap_or(Duration::from_secs(1));
        match cause {
            FailureCause::NoAnswer => quick,
            FailureCause::Forbidden if self.persists() => FORBIDDEN,
            FailureCause::Undefined if self.persists() => UNDEFINED,
            FailureCause::Forbidden | FailureCause::Undefined => quick,
            FailureCause::Other => {
                let slow = self.slow.next().unwrap_or(Duration::from_secs(30));
                // Clients that were refused together do not all come back at the same moment.
                error.retry_after().map_or(slow, |named| named + slow.min(named / 2))
            }
        }
    }

    /// Reports whether the last failures have had the same cause for at least [`GRACE`].
    pub(super) fn persists(&self) -> bool {
        self.last_cause.is_some_and(|(_, since)| since.elapsed() >= GRACE)
    }

    /// Returns the time for which the last failures have been a missing right.
    pub(super) fn forbidden_for(&self) -> Duration {
        let since = self.last_cause.filter(|(cause, _)| *cause == FailureCause::Forbidden).map(|(_, since)| since);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Reports whether the kind has been undefined for at least [`GRACE`], in which an API server may not know it yet.
    pub(super) fn is_undefined(&self) -> bool {
        self.last_cause.is_some_and(|(cause, _)| cause == FailureCause::Undefined) && self.persists()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use tokio::time::advance;

    use super::*;

    fn refused(code: u16, after: Option<u64>) -> RequestError {
        let status = Box::new(Status { code, ..Status::default() });
        RequestError::Refused { what: String::new(), code, status, after: after.map(Duration::from_secs) }
    }

    /// Returns the delays after this many failures in a row, without any time between them.
    fn pauses(error: &RequestError, many: usize) -> Vec<Duration> {
        let mut pauses = WatchBackoff::default();
        (0..many).map(|_| pauses.next_delay(error)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_asked_within_two_seconds() {
        let silent = RequestError::Timeout { what: String::new(), after: Duration::from_secs(10) };
        let pauses = pauses(&silent, 50);
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(2)), "{pauses:?}");
        assert!(pauses[5..].iter().all(|pause| *pause >= Duration::from_millis(500)), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_too_much_to_do_is_asked_ever_less_often_and_not_before_the_time_it_names() {
        for code in [429, 500, 503] {
            let pauses = pauses(&refused(code, None), 12);
            assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(30)), "{pauses:?}");
            assert!(pauses[11] >= Duration::from_secs(15), "{pauses:?}");
        }
        for pause in pauses(&refused(429, Some(3)), 12) {
            assert!(pause >= Duration::from_secs(3) && pause <= Duration::from_secs(5), "{pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_right_is_asked_for_often_for_a_moment_and_then_every_thirty_seconds() {
        let mut pauses = WatchBackoff::default();
        assert!(pauses.next_delay(&refused(403, None)) <= Duration::from_secs(2));
        advance(GRACE).await;
        assert_eq!(pauses.next_delay(&refused(403, None)), FORBIDDEN);
        advance(FORBIDDEN).await;
        assert_eq!(pauses.forbidden_for(), GRACE + FORBIDDEN);
        assert!(pauses.next_delay(&refused(404, None)) <= Duration::from_secs(2));
        assert_eq!((pauses.forbidden_for(), pauses.is_undefined()), (Duration::ZERO, false));
    }
}
