//! Writes `status.lastInvocationAt`, off the request path.
//!
//! A request only notes the time in its workload. Once a second what was noted is compared with what the cache holds, which
//! is also what the other replicas wrote: each workload is written at most once in ten seconds by all of them together, and
//! never back. A write is bound to the value that was read, so of two replicas that write at once one is refused.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use cluster::last_invocation::{InvokedObject, LastInvocationWriter};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use machine::ApiError;
use meta::Key;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::routes::Route;

/// How often it is looked for what there is to write.
const TICK: Duration = Duration::from_secs(1);
/// How long a written value stays.
const WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// How much older than its write a value may be: by its rounding to a second, and by the wait for the next look.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_secs(2);
/// How long it is remembered that a write was refused.
const CONFLICT_TTL: Duration = Duration::from_secs(300);
/// How many writes are under way at the same time.
const MAX_CONCURRENT_WRITES: usize = 16;
/// How long the last writes of a process may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The way to the field.
#[async_trait]
pub(super) trait WriteInvocation: Send + Sync {
    /// Writes `at`, with `guard` only if the field still holds this.
    async fn stamp(
        &self,
        object: &InvokedObject,
        guard: Option<Option<Timestamp>>,
        at: Timestamp,
    ) -> Result<(), ApiError>;
}

#[async_trait]
impl WriteInvocation for LastInvocationWriter {
    async fn stamp(
        &self,
        object: &InvokedObject,
        guard: Option<Option<Timestamp>>,
        at: Timestamp,
    ) -> Result<(), ApiError> {
        Self::write(self, object, guard, at).await
    }
}

/// What is known of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InvocationRecord {
    object: InvokedObject,
    /// When this process last relayed an answer of it, in milliseconds since 1970; 0: never.
    invoked_at: i64,
    /// What the field holds.
    written: Option<Timestamp>,
}

impl From<&Arc<Route>> for InvocationRecord {
    fn from(route: &Arc<Route>) -> Self {
        let workload = &route.workload;
        let object = InvokedObject {
            resource: workload.kind.resource(),
            key: Key::new(&*workload.namespace, &*workload.name),
            uid: route.object.uid.as_ref().into(),
        };
        let invoked_at = workload.invoked_at.load(std::sync::atomic::Ordering::Relaxed);
        Self { object, invoked_at, written: route.object.last_invocation_at }
    }
}

/// A write of this process.
#[derive(Debug, Clone, Copy)]
struct WriteAttempt {
    at: Instant,
    /// What the field held when it was refused as outdated.
    stale_value: Option<Option<Timestamp>>,
}

/// Writes what was noted.
pub(super) struct Invocations<S> {
    writer: S,
    /// The writes of the last ten seconds and those refused lately, by uid.
    attempts: HashMap<String, WriteAttempt>,
}

/// Writes once a second until `stop`, and then what is left.
pub(super) async fn run(stamper: LastInvocationWriter, routes: impl Fn() -> Vec<Arc<Route>>, stop: CancellationToken) {
    let mut invocations = Invocations { writer: stamper, attempts: HashMap::new() };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! { _ = ticks.tick() => false, () = stop.cancelled() => true };
        let seen = routes().iter().filter(|route| is_newer(route)).map(InvocationRecord::from).collect();
        if last {
            if timeout(FLUSH_TIMEOUT, invocations.write(seen, Timestamp::now(), true)).await.is_err() {
                tracing::warn!("not every lastInvocationAt could be written in time");
            }
            return;
        }
        invocations.write(seen, Timestamp::now(), false).await;
    }
}

/// Whether there may be something to write; most workloads are quiet.
fn is_newer(route: &Arc<Route>) -> bool {
    let written = route.object.last_invocation_at.map_or(0, Timestamp::as_millisecond);
    route.workload.invoked_at.load(std::sync::atomic::Ordering::Relaxed) > written
}

impl<S: WriteInvocation> Invocations<S> {
    /// Writes what is due; at the end also what was written less than ten seconds ago.
    async fn write(&mut self, seen: Vec<InvocationRecord>, now: Timestamp, last: bool) {
        let started = Instant::now();
        let is_recent = |tried: &WriteAttempt| started - tried.at < WRITE_INTERVAL.unsigned_abs();
        self.attempts
            .retain(|_, tried| is_recent(tried) || (tried.stale_value.is_some() && started - tried.at < CONFLICT_TTL));
        let due = seen.into_iter().filter_map(|seen| {
            let tried = self.attempts.get(&seen.object.uid);
            let at = due(&seen, now, last).filter(|_| last || !tried.is_some_and(is_recent))?;
            // A value in other words than ours can never be the expected one: it is replaced the second time.
            let refused = tried.and_then(|tried| tried.stale_value) == Some(seen.written);
            Some((seen, at, (!refused).then_some(())))
        });
        let due: Vec<_> = due.collect();
        let stamp = &self.writer;
        let writes = stream::iter(due).map(|(seen, at, guarded)| async move {
            let outcome = stamp.stamp(&seen.object, guarded.map(|()| seen.written), at).await;
            (seen, outcome)
        });
        let mut outcomes = writes.buffer_unordered(MAX_CONCURRENT_WRITES);
        while let Some((InvocationRecord { object, written, .. }, outcome)) = outcomes.next().await {
            let stale = outcome == Err(ApiError::Stale);
            self.attempts
                .insert(object.uid, WriteAttempt { at: Instant::now(), stale_value: stale.then_some(written) });
            match outcome {
                Ok(()) | Err(ApiError::Stale | ApiError::NotFound | ApiError::NamespaceTerminating) => {}
                Err(error) => {
                    let kind = object.resource.kind;
                    tracing::warn!(kind, object = %object.key, ?error, "lastInvocationAt is not written");
                }
            }
        }
    }
}

/// What is to be written now, if anything.
fn due(seen: &InvocationRecord, now: Timestamp, last: bool) -> Option<Timestamp> {
    let invoked = Timestamp::from_second(seen.invoked_at.div_euclid(1000)).ok().filter(|_| seen.invoked_at > 0)?;
    match seen.written {
        None => Some(invoked),
        Some(written) => (invoked > written && (last || now.duration_since(written) >= WRITE_INTERVAL + CLOCK_SLACK))
            .then_some(invoked),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use cluster::resource::Resource;
    use tokio::time::advance;

    use super::*;

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn seen(invoked: i64, written: Option<i64>) -> InvocationRecord {
        let object = InvokedObject { resource: Resource::AGENT, key: Key::new("ns", "a"), uid: "u".into() };
        InvocationRecord { object, invoked_at: time(invoked).as_millisecond() + 345, written: written.map(time) }
    }

    #[test]
    fn what_is_younger_than_ten_seconds_or_newer_stays() {
        for (invoked, written, now, regular, at_the_end) in [
            (5, None, 5, Some(5), Some(5)),
            (5, Some(0), 9, None, Some(5)),
            (5, Some(0), 11, None, Some(5)),
            (5, Some(0), 12, Some(5), Some(5)),
            (5, Some(5), 20, None, None),
            (5, Some(7), 20, None, None),
            (5, Some(30), 20, None, None),
        ] {
            let seen = seen(invoked, written);
            assert_eq!(due(&seen, time(now), false), regular.map(time), "{invoked} {written:?} {now}");
            assert_eq!(due(&seen, time(now), true), at_the_end.map(time), "at the end: {invoked} {written:?} {now}");
        }
        assert_eq!(due(&InvocationRecord { invoked_at: 0, ..seen(0, None) }, time(0), true), None);
    }

    /// Takes every write, or answers with what it was told.
    #[derive(Default)]
    struct Written {
        writes: Mutex<Vec<(Option<Option<i64>>, i64)>>,
        answer: Mutex<Option<ApiError>>,
    }

    #[async_trait]
    impl WriteInvocation for Written {
        async fn stamp(
            &self,
            _: &InvokedObject,
            guard: Option<Option<Timestamp>>,
            at: Timestamp,
        ) -> Result<(), ApiError> {
            let offset = |at: Timestamp| at.as_second() - 1_000_000;
            self.writes.lock().unwrap().push((guard.map(|was| was.map(offset)), offset(at)));
            self.answer.lock().unwrap().clone().map_or(Ok(()), Err)
        }
    }

    fn invocations() -> Invocations<Written> {
        Invocations { writer: Written::default(), attempts: HashMap::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_is_written_once_in_ten_seconds_though_the_cache_lags() {
        let mut invocations = invocations();
        for second in 0..25 {
            // The cache never hears of a write.
            invocations.write(vec![seen(second, None)], time(second), false).await;
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(*invocations.writer.writes.lock().unwrap(), [(Some(None), 0), (Some(None), 10), (Some(None), 20)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_is_written_at_the_end() {
        let mut invocations = invocations();
        invocations.write(vec![seen(0, None)], time(0), false).await;
        advance(Duration::from_secs(3)).await;
        invocations.write(vec![seen(3, Some(0))], time(3), false).await;
        assert_eq!(*invocations.writer.writes.lock().unwrap(), [(Some(None), 0)]);
        invocations.write(vec![seen(3, Some(0))], time(3), true).await;
        assert_eq!(invocations.writer.writes.lock().unwrap()[1..], [(Some(Some(0)), 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_in_other_words_does_not_stay_for_ever() {
        let mut invocations = invocations();
        *invocations.writer.answer.lock().unwrap() = Some(ApiError::Stale);
        for second in [20, 25, 31] {
            invocations.write(vec![seen(second, Some(0))], time(second), false).await;
            advance(Duration::from_secs(6)).await;
        }
        assert_eq!(*invocations.writer.writes.lock().unwrap(), [(Some(Some(0)), 20), (None, 31)]);
    }
}
