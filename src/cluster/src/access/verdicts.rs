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
const NO: Duration = Duration::from_secs(5);
/// How long a request waits for a review when there is an old answer to fall back on.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after a failed review an old answer serves without another one.
const PAUSE: Duration = Duration::from_secs(5);
/// How many answers of each sort are kept.
const CAPACITY: usize = 10_000;

/// SHA-256 of what a question is about. It holds the token, which is kept nowhere else.
pub(super) type Digest = [u8; 32];

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum No {
    /// The token is nobody's.
    Unknown,
    /// Its owner may not do this.
    Forbidden,
}

/// What is known of a question before it is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The last review said yes, however long ago.
    Known,
    /// It said no a moment ago, and that is said again without another review.
    Refused,
    /// It takes a review.
    Unknown,
}

/// The answer of a review.
#[derive(Debug, Clone)]
pub struct Answer<V> {
    /// Yes, with what is known then, or no.
    pub verdict: Result<V, No>,
    /// When it was true.
    pub at: Instant,
}

/// There is no answer: the API server could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// The outcome of a review.
pub(super) type Outcome<V> = Result<Answer<V>, Unavailable>;

/// How long an answer is believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// From here on a yes is reviewed again in the background.
    pub(super) renew: Duration,
    /// Until here a yes is as good as new.
    pub(super) fresh: Duration,
    /// Until here it serves if nobody can be asked.
    pub(super) grace: Duration,
}

impl Terms {
    /// Those of this answer: a no is soon asked about again, because rights are given while somebody waits for them.
    fn of<V>(self, answer: &Answer<V>) -> Self {
        match answer.verdict {
            Ok(_) => self,
            Err(_) => Self { renew: NO, fresh: NO, grace: self.grace },
        }
    }
}

/// The answers to one sort of question.
#[derive(Debug)]
pub(super) struct Verdicts<V> {
    terms: Terms,
    kept: Arc<Mutex<Kept<V>>>,
}

#[derive(Debug)]
struct Kept<V> {
    yes: Bounded<V>,
    no: Bounded<V>,
    flights: HashMap<Digest, watch::Receiver<Option<Outcome<V>>>>,
}

impl<V: Clone + Send + Sync + 'static> Verdicts<V> {
    /// Nothing is known.
    pub(super) fn new(terms: Terms) -> Self {
        let kept = Kept { yes: Bounded::default(), no: Bounded::default(), flights: HashMap::new() };
        Self { terms, kept: Arc::new(Mutex::new(kept)) }
    }

    /// The answer to a question that needs no review and starts none.
    pub(super) fn known(&self, key: &Digest) -> Option<Answer<V>> {
        let kept = lock(&self.kept);
        let answer = kept.yes.entries.get(key).map(|entry| &entry.answer)?;
        (answer.at.elapsed() < self.terms.renew).then(|| answer.clone())
    }

    /// What is known of it.
    pub(super) fn standing(&self, key: &Digest) -> Standing {
        let kept = lock(&self.kept);
        match kept.no.entries.get(key) {
            _ if kept.yes.entries.contains_key(key) => Standing::Known,
            Some(no) if no.answer.at.elapsed() < NO => Standing::Refused,
            _ => Standing::Unknown,
        }
    }

    /// The answer to a question: as known, else by `review`, which is started once however many ask, and goes on when they
    /// no longer wait.
    pub(super) async fn get<F>(&self, key: Digest, review: impl FnOnce() -> F) -> Outcome<V>
    where
        F: Future<Output = Outcome<V>> + Send + 'static,
    {
        let (mut flight, old) = {
            let mut kept = lock(&self.kept);
            let now = Instant::now();
            let known = kept.yes.entries.get(&key).or_else(|| kept.no.entries.get(&key));
            let old = match known.map(|entry| (entry.answer.clone(), entry.failed)) {
                Some((answer, failed)) => {
                    let age = now - answer.at;
                    let paused = failed.is_some_and(|at| now - at < PAUSE);
                    let Terms { renew, fresh, grace } = self.terms.of(&answer);
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
        match timeout(PATIENCE, landed).await {
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(_) => Ok(old),
            Err(_) => {
                lock(&self.kept).failed(&key);
                Ok(old)
            }
        }
    }

    /// The review that answers this question: the one under way, or one that starts now.
    fn join<F>(
        &self,
        kept: &mut Kept<V>,
        key: Digest,
        review: impl FnOnce() -> F,
    ) -> watch::Receiver<Option<Outcome<V>>>
    where
        F: Future<Output = Outcome<V>> + Send + 'static,
    {
        // One whose task is gone without an answer is under way no more.
        if let Some(flight) = kept.flights.get(&key).filter(|flight| flight.has_changed().is_ok()) {
            return flight.clone();
        }
        let (landed, flight) = watch::channel(None);
        kept.flights.insert(key, flight.clone());
        let (review, kept) = (review(), self.kept.clone());
        tokio::spawn(async move {
            let outcome = review.await;
            lock(&kept).land(&key, &outcome);
            landed.send_replace(Some(outcome));
        });
        flight
    }
}

impl<V: Clone> Kept<V> {
    fn land(&mut self, key: &Digest, outcome: &Outcome<V>) {
        self.flights.remove(key);
        match outcome {
            Ok(answer) if answer.verdict.is_ok() => {
                self.no.entries.remove(key);
                self.yes.put(*key, answer.clone());
            }
            Ok(answer) => {
                self.yes.entries.remove(key);
                self.no.put(*key, answer.clone());
            }
            Err(Unavailable) => self.failed(key),
        }
    }

    fn failed(&mut self, key: &Digest) {
        self.yes.failed(key);
        self.no.failed(key);
    }
}

fn lock<V>(kept: &Mutex<Kept<V>>) -> MutexGuard<'_, Kept<V>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers, of which the oldest go when there are too many.
#[derive(Debug)]
struct Bounded<V> {
    entries: HashMap<Digest, Entry<V>>,
    /// Every answer that was put in, oldest first; also those that were replaced since.
    order: VecDeque<(Digest, Instant)>,
}

#[derive(Debug)]
struct Entry<V> {
    answer: Answer<V>,
    put: Instant,
    /// When a review of it failed last.
    failed: Option<Instant>,
}

impl<V> Default for Bounded<V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<V> Bounded<V> {
    fn put(&mut self, key: Digest, answer: Answer<V>) {
        let now = Instant::now();
        self.entries.insert(key, Entry { answer, put: now, failed: None });
        self.order.push_back((key, now));
        while self.order.len() > CAPACITY {
            let Some((oldest, put)) = self.order.pop_front() else { return };
            if self.entries.get(&oldest).is_some_and(|entry| entry.put == put) {
                self.entries.remove(&oldest);
            }
        }
    }

    fn failed(&mut self, key: &Digest) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failed = Some(Instant::now());
        }
    }
}

#[cfg(test)]
#[path = "verdicts_tests.rs"]
mod tests;
