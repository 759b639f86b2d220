//! Which objects of one kind are to be looked at, and when.
//!
//! A key is queued once however often it is added, is never worked on twice at the same time, and is worked on again if
//! it was added meanwhile. Adding it overrides a delay: something happened, so there is no reason to wait. Between two
//! terms of leadership the queue takes nothing, because a term begins with every object anyway.

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

/// The keys of one kind.
#[derive(Default)]
pub struct Workqueue {
    inner: Mutex<WorkqueueState>,
    notify: Notify,
    /// For tests: how often it was added to, where one wake of a hundred is lost.
    lossy: Option<AtomicU64>,
}

#[derive(Default)]
struct WorkqueueState {
    running: bool,
    states: HashMap<Key, KeyState>,
    queued: VecDeque<Key>,
    delayed: BTreeSet<(Instant, Key)>,
}

/// Where a key is. A key without a slot is at rest.
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
    /// For tests: one that loses a wake of a hundred and looks at each key again within five seconds. What depends on a wake alone
    /// shows. The first wake of a key is not lost: nothing else would ever look at it.
    pub fn lossy() -> Self {
        Self { lossy: Some(AtomicU64::new(0)), ..Self::default() }
    }

    /// To be worked on as soon as possible.
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

    /// How many keys could be worked on now.
    pub fn depth(&self) -> usize {
        self.lock().queued.len()
    }

    /// Works for one term, at most `workers` at a time, beginning with every key that `keys` lists. Never returns;
    /// dropping it drops the work under way and forgets what was queued.
    pub async fn run<W, F>(&self, keys: impl FnOnce() -> Vec<Key>, workers: usize, work: W)
    where
        W: Fn(Key) -> F + Send + Sync + 'static,
        F: Future<Output = Requeue> + Send + 'static,
    {
        let _term = LeadershipTerm::begin(self);
        // Listed only now: what comes into being after the list was made is added, and no longer dropped.
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

/// A term of leadership: the queue is empty before it and after it.
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

    /// The next key to work on.
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
            // With all keys at rest, the memory that a busy time took is given back.
            Requeue::OnChange if self.states.is_empty() => *self = Self { running: self.running, ..Self::default() },
            Requeue::OnChange => {}
        }
    }

    fn delay(&mut self, key: Key, due: Instant) {
        self.states.insert(key.clone(), KeyState::Delayed(due));
        self.delayed.insert((due, key));
    }
}

/// Of so many wakes a lossy queue loses one.
const DROP_ONE_IN: u64 = 100;

/// When a lossy queue looks again.
fn clamp_delay(next: Requeue) -> Requeue {
    const SOON: Duration = Duration::from_secs(5);
    match next {
        Requeue::Now => Requeue::Now,
        Requeue::After(delay) => Requeue::After(delay.min(SOON)),
        Requeue::OnChange => Requeue::After(SOON),
    }
}

/// The driver catches the panics of actions, so this is a defect of its own; the object must not be forgotten for it.
const AFTER_PANIC: Requeue = Requeue::After(Duration::from_secs(60));
/// Nothing needs a longer delay, and an instant can overflow.
const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use tokio::{sync::mpsc, time::sleep};

    use super::*;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    /// Runs a queue in which each step takes `took` and then answers `next`; reports the steps' beginnings.
    fn start(
        keys: &[&str],
        workers: usize,
        took: Duration,
        next: impl Fn(&Key) -> Requeue + Send + Sync + 'static,
    ) -> (Arc<Workqueue>, mpsc::UnboundedReceiver<(String, Duration)>, tokio::task::JoinHandle<()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue = Arc::new(Workqueue::default());
        let (running, begun, next) = (queue.clone(), Instant::now(), Arc::new(next));
        let keys = keys.iter().map(|name| key(name)).collect();
        let task = tokio::spawn(async move {
            let work = move |key: Key| {
                let (sender, next) = (sender.clone(), next.clone());
                async move {
                    sender.send((key.name.clone(), begun.elapsed())).unwrap();
                    sleep(took).await;
                    next(&key)
                }
            };
            running.run(|| keys, workers, work).await;
        });
        (queue, receiver, task)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once() {
        let (queue, mut steps, _task) = start(&["a", "a", "b"], 1, SECOND, |_| Requeue::OnChange);
        sleep(SECOND / 2).await;
        queue.add(&key("b"));
        assert_eq!(queue.depth(), 1);
        sleep(SECOND * 10).await;
        assert_eq!(steps.recv().await.unwrap().0, "a");
        assert_eq!(steps.recv().await.unwrap().0, "b");
        assert!(steps.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_is_worked_on_is_worked_on_again_and_never_twice_at_once() {
        let (queue, mut steps, _task) = start(&["a"], 4, SECOND, |_| Requeue::OnChange);
        sleep(SECOND / 2).await;
        queue.add(&key("a"));
        queue.add(&key("a"));
        assert_eq!(steps.recv().await.unwrap().1, Duration::ZERO);
        assert_eq!(steps.recv().await.unwrap().1, SECOND);
        sleep(SECOND * 10).await;
        assert!(steps.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn adding_overrides_a_delay() {
        let (queue, mut steps, _task) = start(&["a"], 1, Duration::ZERO, |_| Requeue::After(SECOND * 60));
        steps.recv().await.unwrap();
        sleep(SECOND).await;
        queue.add(&key("a"));
        assert_eq!(steps.recv().await.unwrap().1, SECOND);
        assert_eq!(steps.recv().await.unwrap().1, SECOND * 61, "the delay begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lossy_queue_loses_one_wake_of_a_hundred_and_looks_again_within_five_seconds() {
        let (sender, mut steps) = mpsc::unbounded_channel();
        let queue = Arc::new(Workqueue::lossy());
        let (running, begun) = (queue.clone(), Instant::now());
        let _task = tokio::spawn(async move {
            let work = move |_| {
                let sent = sender.send(begun.elapsed());
                async move { if sent.is_ok() { Requeue::After(SECOND * 600) } else { Requeue::OnChange } }
            };
            running.run(|| vec![key("a")], 1, work).await;
        });
        assert_eq!(steps.recv().await.unwrap(), Duration::ZERO);
        for _ in 0..100 {
            queue.add(&key("a"));
            sleep(SECOND / 100).await;
        }
        let mut seen = 0;
        while steps.try_recv().is_ok() {
            seen += 1;
        }
        assert_eq!(seen, 99);
        assert!(steps.recv().await.unwrap() < SECOND * 7);
        for _ in 0..99 {
            queue.add(&key("a"));
        }
        queue.add(&key("new"));
        sleep(SECOND / 100).await;
        let new = key("new");
        assert!(queue.lock().states.contains_key(&new), "the first wake of a key is not lost");
    }

    #[tokio::test(start_paused = true)]
    async fn what_moved_goes_on_at_once_behind_the_others() {
        let (_queue, mut steps, task) = start(&["a", "b"], 1, SECOND, |_| Requeue::Now);
        for expected in ["a", "b", "a", "b"] {
            assert_eq!(steps.recv().await.unwrap().0, expected);
        }
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_forgets_nobody() {
        let (_queue, mut steps, _task) = start(&["a"], 1, Duration::ZERO, |_| panic!("a defect"));
        assert_eq!(steps.recv().await.unwrap().1, Duration::ZERO);
        assert_eq!(steps.recv().await.unwrap().1, SECOND * 60);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_workers_than_asked_for() {
        let (_queue, mut steps, _task) = start(&["a", "b", "c"], 2, SECOND, |_| Requeue::OnChange);
        let mut times = Vec::new();
        for _ in 0..3 {
            times.push(steps.recv().await.unwrap().1);
        }
        assert_eq!(times, [Duration::ZERO, Duration::ZERO, SECOND]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_into_being_while_a_term_begins_is_not_lost() {
        let (sender, mut steps) = mpsc::unbounded_channel();
        let queue = Arc::new(Workqueue::default());
        let running = queue.clone();
        let _task = tokio::spawn(async move {
            let listed = || {
                running.add(&key("late"));
                vec![key("a")]
            };
            let work = move |key: Key| {
                let sent = sender.send(key.name);
                async move { if sent.is_ok() { Requeue::OnChange } else { Requeue::Now } }
            };
            running.run(listed, 1, work).await;
        });
        assert_eq!(steps.recv().await.unwrap(), "late");
        assert_eq!(steps.recv().await.unwrap(), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_term_drops_the_work_and_takes_nothing_more() {
        let (queue, mut steps, task) = start(&["a", "b"], 1, SECOND, |_| Requeue::Now);
        steps.recv().await.unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        queue.add(&key("c"));
        assert_eq!(queue.depth(), 0);
        assert!(steps.recv().await.is_none(), "the step under way is gone, and its sender with it");
    }
}
