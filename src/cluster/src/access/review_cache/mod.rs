//! Cache of review verdicts: stale-while-revalidate, and single-flight for each question.
//!
//! A grant is fresh for a minute and a denial for five seconds. A grant that becomes old is reviewed again in the background while it still
//! serves, so that callers do not wait (stale-while-revalidate, [RFC 5861](https://www.rfc-editor.org/rfc/rfc5861)). At most one review of
//! a question is in flight, and all its callers share it ([single-flight](https://pkg.go.dev/golang.org/x/sync/singleflight)). While the
//! API server is unavailable, grants and denials serve for some minutes more (stale-if-error). Grants and denials are kept apart and each
//! is bounded: a flood of invalid tokens evicts no valid one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

/// Time for which a denial is fresh.
const DENIAL_TTL: Duration = Duration::from_secs(5);
/// Longest wait for a review when a stale verdict is at hand.
const REFRESH_WAIT: Duration = Duration::from_secs(1);
/// Back-off after a failed review, in which the stale verdict serves without another review.
const FAILURE_BACKOFF: Duration = Duration::from_secs(5);
/// Most grants in the cache, and most denials.
const CAPACITY: usize = 10_000;

/// SHA-256 of a question, its token included. The cache does not keep the token itself.
pub(super) type Digest = [u8; 32];

/// Reason for a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The token is invalid.
    Unknown,
    /// The token's owner lacks the right.
    Forbidden,
}

/// Cached state of a token, before it is reviewed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// The last review granted, however long ago.
    Known,
    /// A review denied a moment ago, and the denial serves without another review.
    Refused,
    /// A review is needed.
    Unknown,
}

/// Verdict of a review.
#[derive(Debug, Clone)]
pub struct ReviewVerdict<V> {
    /// Grant, with the value derived from the identity, or denial.
    pub verdict: Result<V, Denial>,
    /// Time at which the verdict was true.
    pub at: Instant,
}

/// Missing verdict: the API server could not be queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// Outcome of a review.
pub(super) type ReviewResult<V> = Result<ReviewVerdict<V>, Unavailable>;

/// Lifetimes of a verdict.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachePolicy {
    /// Age from which a grant is reviewed again in the background.
    pub(super) renew: Duration,
    /// Age up to which a grant is fresh.
    pub(super) fresh: Duration,
    /// Age up to which a stale verdict serves while the API server is unavailable.
    pub(super) grace: Duration,
}

impl CachePolicy {
    /// Returns the lifetimes of this verdict: a denial expires soon, because rights are granted while a user waits for them.
    fn for_answer<V>(self, answer: &ReviewVerdict<V>) -> Self {
        match answer.verdict {
            Ok(_) => self,
            Err(_) => Self { renew: DENIAL_TTL, fresh: DENIAL_TTL, grace: self.grace },
        }
    }
}

/// Cache of the verdicts on one sort of question.
#[derive(Debug)]
pub(super) struct ReviewCache<V> {
    policy: CachePolicy,
    state: Arc<Mutex<ReviewCacheState<V>>>,
}

/// Invariant: a question is in `allowed` or in `denied`, never in both, and has at most one review in `in_flight`.
#[derive(Debug)]
struct ReviewCacheState<V> {
    allowed: BoundedCache<V>,
    denied: BoundedCache<V>,
    in_flight: HashMap<Digest, watch::Receiver<Option<ReviewResult<V>>>>,
}

impl<V: Clone + Send + Sync + 'static> ReviewCache<V> {
    /// Creates an empty cache.
    pub(super) fn new(terms: CachePolicy) -> Self {
        let kept = ReviewCacheState {
            allowed: BoundedCache::default(),
            denied: BoundedCache::default(),
            in_flight: HashMap::new(),
        };
        Self { policy: terms, state: Arc::new(Mutex::new(kept)) }
    }

    /// Returns a cached grant that needs no review, and starts none.
    pub(super) fn cached(&self, key: &Digest) -> Option<ReviewVerdict<V>> {
        let kept = lock(&self.state);
        let answer = kept.allowed.entries.get(key).map(|entry| &entry.answer)?;
        (answer.at.elapsed() < self.policy.renew).then(|| answer.clone())
    }

    /// Returns the cached state of a question.
    pub(super) fn token_state(&self, key: &Digest) -> TokenState {
        let kept = lock(&self.state);
        match kept.denied.entries.get(key) {
            _ if kept.allowed.entries.contains_key(key) => TokenState::Known,
            Some(no) if no.answer.at.elapsed() < DENIAL_TTL => TokenState::Refused,
            _ => TokenState::Unknown,
        }
    }

    /// Returns the verdict on a question: from the cache, else by `review`. The review runs once for all concurrent callers
    /// (single-flight), and goes on when they no longer wait.
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

    /// Joins the review of this question that is in flight, or starts one.
    fn join<F>(
        &self,
        kept: &mut ReviewCacheState<V>,
        key: Digest,
        review: impl FnOnce() -> F,
    ) -> watch::Receiver<Option<ReviewResult<V>>>
    where
        F: Future<Output = ReviewResult<V>> + Send + 'static,
    {
        // A review whose task ended without a verdict is no longer in flight.
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

/// Bounded cache that evicts its oldest verdicts.
///
/// Invariant: each entry has its insertion in `order`, which is at most [`CAPACITY`] long.
#[derive(Debug)]
struct BoundedCache<V> {
    entries: HashMap<Digest, CachedVerdict<V>>,
    /// Every insertion, oldest first, also of verdicts that a later one replaced.
    order: VecDeque<(Digest, Instant)>,
}

#[derive(Debug)]
struct CachedVerdict<V> {
    answer: ReviewVerdict<V>,
    inserted_at: Instant,
    /// Time of the last failed review.
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
mod tests;
