//! [Workqueue](https://pkg.go.dev/k8s.io/client-go/util/workqueue) of one kind: the keys to reconcile, with deduplication and requeue after
//! a delay.
//!
//! Deduplication: a key is queued once however often it is added, is never processed twice at the same time, and is processed again if it
//! was added meanwhile. Adding a key overrides the delay of its requeue: something happened, so there is no reason to wait. Between two
//! terms of leadership the queue accepts nothing, because a term begins with every object anyway.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use machine::Requeue;
use meta::Key;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// Workqueue of the keys of one kind.
///
/// # Example
///
/// One worker during one term of leadership. The key `b` is added twice while `a` is processed, and is processed once.
///
/// ```
/// # use std::sync::Arc;
/// # use machine::Requeue;
/// # use meta::Key;
/// # use operator::workqueue::Workqueue;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = Arc::new(Workqueue::default());
/// let (sender, mut processed) = tokio::sync::mpsc::unbounded_channel();
/// let running = queue.clone();
/// let term = tokio::spawn(async move {
///     let adding = running.clone();
///     let work = move |key: Key| {
///         if key.name == "a" {
///             ["b", "b", "c"].map(|name| adding.add(&Key::new("ns", name)));
///         }
///         let sent = sender.send(key.name);
///         async move { if sent.is_ok() { Requeue::OnChange } else { Requeue::Now } }
///     };
///     running.run(|| vec![Key::new("ns", "a")], 1, work).await;
/// });
/// for name in ["a", "b", "c"] {
///     assert_eq!(processed.recv().await.as_deref(), Some(name));
/// }
///
/// term.abort();
/// assert!(term.await.is_err());
/// queue.add(&Key::new("ns", "d"));
/// assert_eq!(queue.depth(), 0, "between two terms the queue accepts nothing");
/// # }
/// ```
#[derive(Default)]
pub struct Workqueue {
    inner: Mutex<WorkqueueState>,
    notify: Notify,
    /// For tests: number of additions to a lossy queue, which drops one of a hundred.
    lossy: Option<AtomicU64>,
}

/// Invariant: a key is queued, delayed or processing, never two of them, and `states` says which.
#[derive(Default)]
struct WorkqueueState {
    running: bool,
    states: HashMap<Key, KeyState>,
    queued: VecDeque<Key>,
    delayed: BTreeSet<(Instant, Key)>,
}

/// State of a key. A key without one is at rest.
#[derive(Clone, Copy)]
enum KeyState {
    Queued,
    Delayed(Instant),
    Processing { again: bool },
}

impl fmt::Debug for Workqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueue").field("depth", &self.depth()).finish_non_exhaustive()
    }
}

impl Workqueue {
    /// Creates a lossy queue, for tests: it drops one trigger of a hundred and processes each key again within five seconds, so that code
    /// that depends on a trigger alone shows. The first trigger of a key is not dropped: nothing else would ever enqueue it.
    pub fn lossy() -> Self {
        Self { lossy: Some(AtomicU64::new(0)), ..Self::default() }
    }

    /// Enqueues a key, to be processed as soon as possible.
    pub fn add(&self, key: &Key) {
        let is_known = || self.lock().states.contains_key(key);
        let lost =
            |added: &AtomicU64| added.fetch_add(1, Ordering::Relaxed) % DROP_ONE_IN == DROP_ONE_IN - 1 && is_known();
        if !self.lossy.as_ref().is_some_and(lost) {
            self.enqueue(key);
        }
    }

    fn enqueue(&self, key: &Key) {
        let mut inner = self.lock();
        if !inner.running {
            return;
        }
        match inner.states.get(key).copied() {
            Some(KeyState::Queued | KeyState::Processing { again: true }) => return,
            Some(KeyState::Processing { again: false }) => {
                inner.states.insert(key.clone(), KeyState::Processing { again: true });
                return;
            }
            Some(KeyState::Delayed(due)) => {
                inner.delayed.remove(&(due, key.clone()));
            }
            None => {}
        }
        inner.enqueue(key.clone());
        drop(inner);
        self.notify.notify_one();
    }

    /// Returns the number of keys that could be processed at once.
    pub fn depth(&self) -> usize {
        self.lock().queued.len()
    }

    /// Processes keys for one term of leadership, at most `workers` at a time, beginning with every key that `keys` lists. Never returns;
    /// dropping the future drops the steps in flight and forgets the queued keys.
    pub async fn run<W, F>(&self, keys: impl FnOnce() -> Vec<Key>, workers: usize, work: W)
    where
        W: Fn(Key) -> F + Send + Sync + 'static,
        F: Future<Output = Requeue> + Send + 'static,
    {
        let _term = LeadershipTerm::begin(self);
        // Listed only after the term began: an object that is created after the list is added, and no longer ignored.
        keys().iter().for_each(|key| self.enqueue(key));
        let work = Arc::new(work);
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < workers {
                let Some(key) = self.lock().pop(Instant::now()) else { break };
                let work = work.clone();
                tasks.spawn(async move {
                    let step = AssertUnwindSafe(work(key.clone())).catch_unwind().await;
                    (step.unwrap_or(AFTER_PANIC), key)
                });
            }
            let due = self.lock().delayed.first().map(|(due, _)| *due);
            let idle = tasks.len() < workers;
            tokio::select! {
                Some(done) = tasks.join_next() => {
                    if let Ok((next, key)) = done {
                        let next = if self.lossy.is_some() { clamp_delay(next) } else { next };
                        self.lock().finish(key, next, Instant::now());
                    }
                }
                () = self.notify.notified(), if idle => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if idle && due.is_some() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WorkqueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Term of leadership: the queue is empty before it and after it.
struct LeadershipTerm<'a>(&'a Workqueue);

impl<'a> LeadershipTerm<'a> {
    fn begin(queue: &'a Workqueue) -> Self {
        *queue.lock() = WorkqueueState { running: true, ..WorkqueueState::default() };
        Self(queue)
    }
}

impl Drop for LeadershipTerm<'_> {
    fn drop(&mut self) {
        *self.0.lock() = WorkqueueState::default();
    }
}

impl WorkqueueState {
    fn enqueue(&mut self, key: Key) {
        self.states.insert(key.clone(), KeyState::Queued);
        self.queued.push_back(key);
    }

    /// Pops the next key to process, after it has enqueued the delayed keys that are due.
    fn pop(&mut self, now: Instant) -> Option<Key> {
        while let Some((due, _)) = self.delayed.first()
            && *due <= now
            && let Some((_, key)) = self.delayed.pop_first()
        {
            self.enqueue(key);
        }
        let key = self.queued.pop_front()?;
        self.states.insert(key.clone(), KeyState::Processing { again: false });
        Some(key)
    }

    fn finish(&mut self, key: Key, next: Requeue, now: Instant) {
        let again = matches!(self.states.remove(&key), Some(KeyState::Processing { again: true }));
        match next {
            _ if again => self.enqueue(key),
            Requeue::Now => self.enqueue(key),
            Requeue::After(delay) => self.delay(key, now + delay.min(MAX_DELAY)),
            // With all keys at rest, the memory of a busy time is given back.
            Requeue::OnChange if self.states.is_empty() => *self = Self { running: self.running, ..Self::default() },
            Requeue::OnChange => {}
        }
    }

    fn delay(&mut self, key: Key, due: Instant) {
        self.states.insert(key.clone(), KeyState::Delayed(due));
        self.delayed.insert((due, key));
    }
}

/// Number of triggers of which a lossy queue drops one.
const DROP_ONE_IN: u64 = 100;

/// Returns the requeue of a lossy queue, which is at most 5 s away.
fn clamp_delay(next: Requeue) -> Requeue {
    const SOON: Duration = Duration::from_secs(5);
    match next {
        Requeue::Now => Requeue::Now,
        Requeue::After(delay) => Requeue::After(delay.min(SOON)),
        Requeue::OnChange => Requeue::After(SOON),
    }
}

/// Requeue after a panic. The driver catches the panics of actions, so this is a defect of its own; the object must not be forgotten for
/// it.
const AFTER_PANIC: Requeue = Requeue::After(Duration::from_secs(60));
/// Longest delay of a requeue: nothing needs a longer one, and an instant can overflow.
const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests;
