//! Writes `status.lastInvocationAt`, off the request path.
//!
//! A request only stores the time in its workload's state. Once a second the stored times are compared with the
//! informer cache, which also shows the writes of other replicas: all replicas together write each workload at most
//! once in ten seconds, and never an older value. Writes use optimistic concurrency: a write carries the value that was
//! read, so of two replicas that write at once one gets a conflict.

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

/// Interval at which the stored times are checked.
const TICK: Duration = Duration::from_secs(1);
/// Shortest time between two writes of one workload.
const WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// Slack for the age of a written value: it is rounded down to a second, and was written up to one [`TICK`] after the
/// invocation.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_secs(2);
/// Time for which a conflict is remembered.
const CONFLICT_TTL: Duration = Duration::from_secs(300);
/// Most concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 16;
/// Longest time for the last writes of a process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Writer of `status.lastInvocationAt`.
#[async_trait]
pub(super) trait WriteInvocation: Send + Sync {
    /// Writes `at`. With `guard`, writes only if the field still holds that value.
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

/// Last invocation of one workload, as this process and the informer cache know it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InvocationRecord {
    object: InvokedObject,
    /// Time at which this process last relayed a response of the workload, in milliseconds since 1970; 0 for never.
    invoked_at: i64,
    /// Value of the field in the informer cache.
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

/// Write that this process attempted.
#[derive(Debug, Clone, Copy)]
struct WriteAttempt {
    at: Instant,
    /// Value that the field was expected to hold when the write got a conflict; `None` if there was no conflict.
    stale_value: Option<Option<Timestamp>>,
}

/// Rate-limited writer of the stored invocation times.
pub(super) struct Invocations<S> {
    writer: S,
    /// Attempts of the last ten seconds, and conflicts of the last [`CONFLICT_TTL`], by the uid of the object.
    attempts: HashMap<String, WriteAttempt>,
}

/// Writes once a second until `stop` is cancelled, then flushes the remaining times.
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

/// Reports whether the workload may need a write; most workloads are idle.
fn is_newer(route: &Arc<Route>) -> bool {
    let written = route.object.last_invocation_at.map_or(0, Timestamp::as_millisecond);
    route.workload.invoked_at.load(std::sync::atomic::Ordering::Relaxed) > written
}

impl<S: WriteInvocation> Invocations<S> {
    /// Writes the times that are due. On shutdown (`last`) it also writes workloads that were written less than ten
    /// seconds ago.
    async fn write(&mut self, seen: Vec<InvocationRecord>, now: Timestamp, last: bool) {
        let started = Instant::now();
        let is_recent = |tried: &WriteAttempt| started - tried.at < WRITE_INTERVAL.unsigned_abs();
        self.attempts
            .retain(|_, tried| is_recent(tried) || (tried.stale_value.is_some() && started - tried.at < CONFLICT_TTL));
        let due = seen.into_iter().filter_map(|seen| {
            let tried = self.attempts.get(&seen.object.uid);
            let at = due(&seen, now, last).filter(|_| last || !tried.is_some_and(is_recent))?;
            // A value in another text form than the one written here never matches the test. The second attempt is
            // unguarded and replaces it.
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

/// Returns the time to write now, if one is due.
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
        let object =
            InvokedObject { resource: Resource::of::<crds::Agent>(), key: Key::new("ns", "a"), uid: "u".into() };
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

    /// Records every write, and returns the configured error.
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
            // The informer cache never sees the writes.
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
