//! Models that answered for a workload, by the headers `x-recif-model` and `x-recif-model-failure` of its responses, counted minute by
//! minute.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Length of a window, which begins with its first response.
const WINDOW: Duration = Duration::from_secs(60);
/// Time for which the last window is reported after its end.
const REPORTED: Duration = Duration::from_secs(60);
/// Most models of a window, and most bytes of a name: the header is what the workload likes.
const MAX_MODELS: usize = 8;
const MAX_NAME: usize = 256;

/// Responses by the model that answered, with the failure for which it did, as in `stub/echo (HTTP 503)`.
type AnswerCounts = BTreeMap<String, u64>;

/// Counters of the models that answer for one workload.
#[derive(Debug, Default)]
pub(super) struct AnsweringModels(Mutex<CountWindows>);

#[derive(Debug, Default)]
struct CountWindows {
    /// Start of the window that runs.
    begun: Option<Instant>,
    running: AnswerCounts,
    /// Last window, with its end.
    ended: Option<(Instant, AnswerCounts)>,
}

impl AnsweringModels {
    /// Counts a response of this model, which answered because of this failure of another one.
    pub(super) fn count(&self, model: &[u8], failure: Option<&[u8]>, now: Instant) {
        let Ok(model) = str::from_utf8(model) else { return };
        let answer = match failure.and_then(|failure| str::from_utf8(failure).ok()) {
            Some(failure) => Cow::Owned(format!("{model} ({failure})")),
            None => Cow::Borrowed(model),
        };
        if !(1..=MAX_NAME).contains(&answer.len()) {
            return;
        }
        let mut windows = self.windows(now);
        windows.begun.get_or_insert(now);
        if let Some(count) = windows.running.get_mut(&*answer) {
            *count += 1;
        } else if windows.running.len() < MAX_MODELS {
            windows.running.insert(answer.into_owned(), 1);
        }
    }

    /// Returns the responses of the last window that ended; `None` if there is none, or it is too long ago.
    pub(super) fn last_minute(&self, now: Instant) -> Option<AnswerCounts> {
        self.windows(now).ended.as_ref().map(|(_, counts)| counts.clone())
    }

    /// Returns the windows as they are at this moment.
    fn windows(&self, now: Instant) -> MutexGuard<'_, CountWindows> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = windows.begun.map(|begun| begun + WINDOW).filter(|end| *end <= now) {
            windows.begun = None;
            windows.ended = Some((end, std::mem::take(&mut windows.running)));
        }
        if windows.ended.as_ref().is_some_and(|(end, _)| now.saturating_duration_since(*end) > REPORTED) {
            windows.ended = None;
        }
        windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<const N: usize>(counts: [(&str, u64); N]) -> Option<AnswerCounts> {
        Some(counts.map(|(model, count)| (model.to_owned(), count)).into())
    }

    #[test]
    fn a_minute_is_reported_once_it_is_over_and_for_a_minute() {
        let (models, start) = (AnsweringModels::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        models.count(b"openai/gpt", None, at(0));
        models.count(b"stub/echo", Some(b"HTTP 503"), at(30));
        models.count(b"stub/echo", Some(b"HTTP 503"), at(59));
        assert_eq!(models.last_minute(at(59)), None, "it is not over");
        models.count(b"openai/gpt", None, at(70));
        assert_eq!(models.last_minute(at(70)), counts([("openai/gpt", 1), ("stub/echo (HTTP 503)", 2)]));
        assert_eq!(models.last_minute(at(131)), counts([("openai/gpt", 1)]), "the next one");
        assert_eq!(models.last_minute(at(191)), None, "nothing is known of an agent that no client calls");
    }

    #[test]
    fn what_a_workload_can_make_a_gateway_remember_is_bounded() {
        let (models, now) = (AnsweringModels::default(), Instant::now());
        for number in 0..100 {
            models.count(format!("m/{number:02}").as_bytes(), None, now);
        }
        for odd in [&b"\xff"[..], b"", &[b'x'; MAX_NAME + 1]] {
            models.count(odd, None, now);
        }
        for failure in [&[b'x'; MAX_NAME][..], b"\xff"] {
            models.count(b"m/00", Some(failure), now);
        }
        let found = models.last_minute(now + WINDOW).unwrap();
        assert_eq!((found.len(), found.get("m/07"), found.get("m/08")), (MAX_MODELS, Some(&1), None));
        assert_eq!(found.get("m/00"), Some(&2), "a failure that is no text is left out");
    }
}
