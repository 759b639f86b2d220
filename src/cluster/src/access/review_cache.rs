//! What reviews have answered, for as long as it may be believed, and one review at a time for each question.
//!
//! A yes is fresh for a minute and a no for five seconds. A yes that becomes old is reviewed again in the background while
//! it still serves, so that nobody waits. While the API server is away both serve for some minutes more. Yes and no are
//! kept apart and each is bounded: a flood of wrong tokens drives out no right one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

/// How long a no is believed.
const DENIAL_TTL: Duration = Duration::from_secs(5);
/// How long a request waits for a review when there is an old answer to fall back on.
const REFRESH_WAIT: Duration = Duration::from_secs(1);
/// How long after a failed review an old answer serves without another one.
const FAILURE_BACKOFF: Duration = Duration::from_secs(5);
/// How many answers of each sort are kept.
const CAPACITY: usize = 10_000;

/// SHA-256 of what a question is about. It holds the token, which is kept nowhere else.
pub(super) type Digest = [u8; 32];

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The token is nobody's.
    Unknown,
    /// Its owner may not do this.
    Forbidden,
}

/// What is known of a question before it is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// The last review said yes, however long ago.
    Known,
    /// It said no a moment ago, and that is said again without another review.
    Refused,
    /// It takes a review.
    Unknown,
}

/// The answer of a review.
#[derive(Debug, Clone)]
pub struct ReviewVerdict<V> {
    /// Yes, with what is known then, or no.
    pub verdict: Result<V, Denial>,
    /// When it was true.
    pub at: Instant,
}

/// There is no answer: the API server could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// The outcome of a review.
pub(super) type ReviewResult<V> = Result<ReviewVerdict<V>, Unavailable>;

/// How long an answer is believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachePolicy {
    /// From here on a yes is reviewed again in the background.
    pub(super) renew: Duration,
    /// Until here a yes is as good as new.
    pub(super) fresh: Duration,
    /// Until here it serves if nobody can be asked.
    pub(super) grace: Duration,
}

impl CachePolicy {
    /// Those of this answer: a no is soon asked about again, because rights are given while somebody waits for them.
    fn for_answer<V>(self, answer: &ReviewVerdict<V>) -> Self {
        match answer.verdict {
            Ok(_) => self,
            Err(_) => Self { renew: DENIAL_TTL, fresh: DENIAL_TTL, grace: self.grace },
        }
    }
}

/// The answers to one sort of question.
#[derive(Debug)]
pub(super) struct ReviewCache<V> {
    policy: CachePolicy,
    state: Arc<Mutex<ReviewCacheState<V>>>,
}

#[derive(Debug)]
struct ReviewCacheState<V> {
    allowed: BoundedCache<V>,
    denied: BoundedCache<V>,
    in_flight: HashMap<Digest, watch::Receiver<Option<ReviewResult<V>>>>,
}

impl<V: Clone + Send + Sync + 'static> ReviewCache<V> {
    /// Nothing is known.
    pub(super) fn new(terms: CachePolicy) -> Self {
        let kept = ReviewCacheState {
            allowed: BoundedCache::default(),
            denied: BoundedCache::default(),
            in_flight: HashMap::new(),
        };
        Self { policy: terms, state: Arc::new(Mutex::new(kept)) }
    }

    /// The answer to a question that needs no review and starts none.
    pub(super) fn cached(&self, key: &Digest) -> Option<ReviewVerdict<V>> {
        let kept = lock(&self.state);
        let answer = kept.allowed.entries.get(key).map(|entry| &entry.answer)?;
        (answer.at.elapsed() < self.policy.renew).then(|| answer.clone())
    }

    /// What is known of it.
    pub(super) fn token_state(&self, key: &Digest) -> TokenState {
        let kept = lock(&self.state);
        match kept.denied.entries.get(key) {
            _ if kept.allowed.entries.contains_key(key) => TokenState::Known,
            Some(no) if no.answer.at.elapsed() < DENIAL_TTL => TokenState::Refused,
            _ => TokenState::Unknown,
        }
    }

    /// The answer to a question: as known, else by `review`, which is started once however many ask, and goes on when they
    /// no longer wait.
    pub(super) async fn get<F>(&self, key: Digest, review: impl FnOnce() -> F) -> ReviewResult<V>
    where
        F: Future<Output = ReviewResult<V>> + Send + 'static,
    {
        let (mut flight, old) = {
            let mut kept = lock(&self.state);
            let now = Instant::now();
            let known = kept.allowed.entries.get(&key).or_else(|| kept.denied.entries.get(&key));
            let old = match known.map(|entry| (entry.answer.clone(), entry.failed_at)) {
                Some((answer, failed)) => {
                    let age = now - answer.at;
                    let paused = failed.is_some_and(|at| now - at < FAILURE_BACKOFF);
                    let CachePolicy { renew, fresh, grace } = self.policy.for_answer(&answer);
                    if age < renew || (age < grace.max(fresh) && paused) {
                        return Ok(answer);
                    }
                    if age < fresh {
                        self.join(&mut kept, key, review);
                        return Ok(answer);
                    }
                    (age < grace).then_some(answer)
                }
                None => None,
            };
            (self.join(&mut kept, key, review), old)
        };
        let landed = async { flight.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone()) };
        let Some(old) = old else { return landed.await.unwrap_or(Err(Unavailable)) };
        match timeout(REFRESH_WAIT, landed).await {
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(_) => Ok(old),
            Err(_) => {
                lock(&self.state).record_failure(&key);
                Ok(old)
            }
        }
    }

    /// The review that answers this question: the one under way, or one that starts now.
    fn join<F>(
        &self,
        kept: &mut ReviewCacheState<V>,
        key: Digest,
        review: impl FnOnce() -> F,
    ) -> watch::Receiver<Option<ReviewResult<V>>>
    where
        F: Future<Output = ReviewResult<V>> + Send + 'static,
    {
        // One whose task is gone without an answer is under way no more.
        if let Some(flight) = kept.in_flight.get(&key).filter(|flight| flight.has_changed().is_ok()) {
            return flight.clone();
        }
        let (landed, flight) = watch::channel(None);
        kept.in_flight.insert(key, flight.clone());
        let (review, kept) = (review(), self.state.clone());
        tokio::spawn(async move {
            let outcome = review.await;
            lock(&kept).complete(&key, &outcome);
            landed.send_replace(Some(outcome));
        });
        flight
    }
}

impl<V: Clone> ReviewCacheState<V> {
    fn complete(&mut self, key: &Digest, outcome: &ReviewResult<V>) {
        self.in_flight.remove(key);
        match outcome {
            Ok(answer) if answer.verdict.is_ok() => {
                self.denied.entries.remove(key);
                self.allowed.insert(*key, answer.clone());
            }
            Ok(answer) => {
                self.allowed.entries.remove(key);
                self.denied.insert(*key, answer.clone());
            }
            Err(Unavailable) => self.record_failure(key),
        }
    }

    fn record_failure(&mut self, key: &Digest) {
        self.allowed.record_failure(key);
        self.denied.record_failure(key);
    }
}

fn lock<V>(kept: &Mutex<ReviewCacheState<V>>) -> MutexGuard<'_, ReviewCacheState<V>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers, of which the oldest go when there are too many.
#[derive(Debug)]
struct BoundedCache<V> {
    entries: HashMap<Digest, CachedVerdict<V>>,
    /// Every answer that was put in, oldest first; also those that were replaced since.
    order: VecDeque<(Digest, Instant)>,
}

#[derive(Debug)]
struct CachedVerdict<V> {
    answer: ReviewVerdict<V>,
    inserted_at: Instant,
    /// When a review of it failed last.
    failed_at: Option<Instant>,
}

impl<V> Default for BoundedCache<V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<V> BoundedCache<V> {
    fn insert(&mut self, key: Digest, answer: ReviewVerdict<V>) {
        let now = Instant::now();
        self.entries.insert(key, CachedVerdict { answer, inserted_at: now, failed_at: None });
        self.order.push_back((key, now));
        while self.order.len() > CAPACITY {
            let Some((oldest, put)) = self.order.pop_front() else { return };
            if self.entries.get(&oldest).is_some_and(|entry| entry.inserted_at == put) {
                self.entries.remove(&oldest);
            }
        }
    }

    fn record_failure(&mut self, key: &Digest) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failed_at = Some(Instant::now());
        }
    }
}

#[cfg(test)]
#[path = "verdicts_tests.rs"]
mod tests;
