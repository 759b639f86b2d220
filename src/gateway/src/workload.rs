//! State that all requests of one workload share: the queue for slots, and counters. It outlives every change of the
//! object.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use identity::{KeySet, TokenCache};
use jiff::Timestamp;
use tokio::{sync::oneshot, time::Instant};

use super::{
    balance,
    clock::{Clock, random},
    object::RoutedKind,
    pod::UpstreamPod,
    queue::AdaptiveLifo,
    retry_budget::RetryBudget,
    sessions::PodTag,
    slot::SlotPermit,
};

/// Shared state of one workload.
///
/// Invariant: `waiting` is the length of the queue, and is written only under the lock of `queue_state`. `in_flight` is
/// true while a [`ProbePermit`] exists.
#[derive(Debug)]
pub(super) struct WorkloadState {
    /// Kind of the workload.
    pub(super) kind: RoutedKind,
    /// Namespace of the workload.
    pub(super) namespace: Box<str>,
    /// Name of the workload.
    pub(super) name: Box<str>,
    /// Name by which requests address the workload to a sidecar, such as `agent/default/weather`. A sidecar serves one
    /// workload.
    pub(super) full_name: Box<str>,
    /// Last time at which a response below 500 was relayed, in milliseconds since 1970; 0 for never by this process.
    pub(super) invoked_at: AtomicI64,
    /// Retry budget of the workload.
    pub(super) budget: RetryBudget,
    /// Cache of the signed tokens for its callers.
    tokens: TokenCache,
    /// Clock of the circuit breakers.
    pub(super) clock: Clock,
    waiting: AtomicUsize,
    refused: AtomicU64,
    halted: AtomicU64,
    /// Set while a task probes the Pods for readiness.
    in_flight: AtomicBool,
    queue_state: Mutex<QueueState>,
}

/// Queue of the workload, and the Pods that can serve it.
#[derive(Debug)]
struct QueueState {
    queue: AdaptiveLifo<oneshot::Sender<SlotPermit>>,
    pods: Arc<[Arc<UpstreamPod>]>,
    /// Time integral of the queue length, up to `since`.
    waited: Duration,
    since: Instant,
}

/// Permit to probe the workload's Pods for readiness (single-flight). Dropping it releases it.
#[derive(Debug)]
pub(super) struct ProbePermit(Arc<WorkloadState>);

/// Place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct QueueTicket {
    workload: Arc<WorkloadState>,
    number: u64,
    /// Receives the slot. Closed if the queue was cleared because the state of the workload changed.
    pub(super) granted: oneshot::Receiver<SlotPermit>,
}

/// Unserved demand of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueDemand {
    /// Requests that are queued now.
    pub(super) waiting: usize,
    /// Time integral of the queue length.
    pub(super) waited: Duration,
    /// Requests refused for want of room.
    pub(super) refused: u64,
    /// Requests refused because the workload is Failed and has no Pod, for a reason that a ready Pod would end.
    pub(super) halted: u64,
}

impl WorkloadState {
    /// Creates the state of a workload without requests.
    pub(super) fn new(kind: RoutedKind, namespace: &str, name: &str, clock: Clock) -> Arc<Self> {
        let room = QueueState {
            queue: AdaptiveLifo::default(),
            pods: Arc::new([]),
            waited: Duration::ZERO,
            since: Instant::now(),
        };
        Arc::new(Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            full_name: format!("{}/{namespace}/{name}", kind.name().to_lowercase()).into(),
            invoked_at: AtomicI64::new(0),
            budget: RetryBudget::default(),
            tokens: TokenCache::default(),
            clock,
            waiting: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            halted: AtomicU64::new(0),
            in_flight: AtomicBool::new(false),
            queue_state: Mutex::new(room),
        })
    }

    /// Acquires a slot of one of these Pods, if one has room and no request waits.
    pub(super) fn acquire(self: &Arc<Self>, pods: &[Arc<UpstreamPod>]) -> Option<SlotPermit> {
        if self.waiting.load(Relaxed) > 0 {
            return None;
        }
        balance::acquire(pods, self.clock.now(), random()).map(|pod| self.permit(pod))
    }

    /// Acquires a slot of a Pod that was not tried yet, if one has room and no request waits.
    pub(super) fn acquire_other(self: &Arc<Self>, pods: &[Arc<UpstreamPod>], tried: &[PodTag]) -> Option<SlotPermit> {
        if self.waiting.load(Relaxed) > 0 {
            return None;
        }
        let now = self.clock.now();
        let pod = pods.iter().find(|pod| !tried.contains(&pod.tag) && pod.try_acquire(now))?;
        Some(self.permit(pod.clone()))
    }

    /// Acquires a slot of this Pod, even if it is at its cap.
    pub(super) fn acquire_pinned(self: &Arc<Self>, pod: &Arc<UpstreamPod>) -> SlotPermit {
        pod.acquire_pinned();
        self.permit(pod.clone())
    }

    /// Enqueues a request that arrived at this time. Returns `None` if `most` requests wait already.
    pub(super) fn enqueue(self: &Arc<Self>, arrived: Instant, most: usize) -> Option<QueueTicket> {
        let (sender, granted) = oneshot::channel();
        let number = {
            let mut room = self.queue_state();
            if room.queue.len() >= most {
                return None;
            }
            self.accrue_wait(&mut room);
            let number = room.queue.push(arrived, sender);
            self.waiting.store(room.queue.len(), Relaxed);
            number
        };
        // A slot may have become free between the check for room and the enqueue.
        self.dispatch();
        Some(QueueTicket { workload: self.clone(), number, granted })
    }

    /// Grants slots to queued requests as long as there is room.
    pub(super) fn dispatch(self: &Arc<Self>) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        let mut room = self.queue_state();
        self.accrue_wait(&mut room);
        while room.queue.len() > 0
            && let Some(pod) = balance::acquire(&room.pods, self.clock.now(), random())
        {
            let mut lease = self.permit(pod);
            loop {
                let Some(next) = room.queue.pop(Instant::now()) else {
                    // Dropping the permit would call this again while the queue is locked.
                    lease.withhold();
                    break;
                };
                match next.send(lease) {
                    Ok(()) => break,
                    // The receiver was dropped: this request has just left.
                    Err(unwanted) => lease = unwanted,
                }
            }
        }
        self.waiting.store(room.queue.len(), Relaxed);
    }

    /// Replaces the Pods. `anew` clears the queue, so that waiting requests check the workload's state again.
    pub(super) fn set_pods(self: &Arc<Self>, pods: Arc<[Arc<UpstreamPod>]>, anew: bool) {
        let mut room = self.queue_state();
        room.pods = pods;
        if anew {
            self.accrue_wait(&mut room);
            room.queue.clear();
            self.waiting.store(0, Relaxed);
        }
        drop(room);
        self.dispatch();
    }

    /// Counts a request that was refused for want of room.
    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts a request that was refused because the workload is Failed, for a reason that a ready Pod would end.
    pub(super) fn count_halted(&self) {
        self.halted.fetch_add(1, Relaxed);
    }

    /// Returns the token by which `keys` vouch for a caller.
    pub(super) fn token(&self, user: Option<&Arc<str>>, keys: &Arc<KeySet>) -> Arc<str> {
        self.tokens.get_or_sign(user, keys, Instant::now(), || self.full_name.to_string())
    }

    /// Records that a response below 500 was relayed.
    pub(super) fn record_invocation(&self) {
        self.invoked_at.fetch_max(Timestamp::now().as_millisecond(), Relaxed);
    }

    /// Acquires the permit to probe the Pods, unless a task holds it (single-flight).
    pub(super) fn begin_probe(self: &Arc<Self>) -> Option<ProbePermit> {
        let begins = !self.in_flight.load(Relaxed) && !self.in_flight.swap(true, Relaxed);
        begins.then(|| ProbePermit(self.clone()))
    }

    /// Reports whether a request waits for the workload.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Returns the unserved demand up to now.
    pub(super) fn demand(&self) -> QueueDemand {
        let mut room = self.queue_state();
        self.accrue_wait(&mut room);
        let (refused, halted) = (self.refused.load(Relaxed), self.halted.load(Relaxed));
        QueueDemand { waiting: room.queue.len(), waited: room.waited, refused, halted }
    }

    fn permit(self: &Arc<Self>, pod: Arc<UpstreamPod>) -> SlotPermit {
        SlotPermit::new(self.clone(), pod)
    }

    /// Advances the time integral to now. Must be called before the queue length changes.
    fn accrue_wait(&self, room: &mut QueueState) {
        let now = Instant::now();
        room.waited += (now - room.since) * u32::try_from(room.queue.len()).unwrap_or(u32::MAX);
        room.since = now;
    }

    fn queue_state(&self) -> MutexGuard<'_, QueueState> {
        self.queue_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProbePermit {
    /// Returns the workload whose Pods are probed.
    pub(super) fn workload(&self) -> &Arc<WorkloadState> {
        &self.0
    }
}

impl Drop for ProbePermit {
    fn drop(&mut self) {
        self.0.in_flight.store(false, Relaxed);
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        {
            let mut room = self.workload.queue_state();
            self.workload.accrue_wait(&mut room);
            room.queue.remove(self.number);
            self.workload.waiting.store(room.queue.len(), Relaxed);
        }
        // A slot that was granted and never taken is released when the receiver is dropped, after this.
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::time::advance;

    use super::*;

    /// Creates a workload with one Pod whose cap is one.
    fn narrow() -> (Arc<WorkloadState>, Arc<[Arc<UpstreamPod>]>) {
        let workload = WorkloadState::new(RoutedKind::Agent, "ns", "a", Clock::new());
        let pods: Arc<[Arc<UpstreamPod>]> =
            Arc::new([Arc::new(UpstreamPod::new(SocketAddr::from(([127, 0, 0, 1], 1)), 1))]);
        workload.set_pods(pods.clone(), false);
        (workload, pods)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_goes_to_who_is_next_and_nobody_passes_those_who_wait() {
        let (workload, pods) = narrow();
        let held = workload.acquire(&pods).unwrap();
        let mut first = workload.enqueue(Instant::now(), 9).unwrap();
        advance(Duration::from_millis(1)).await;
        let mut second = workload.enqueue(Instant::now(), 9).unwrap();
        drop(held);
        assert!(workload.acquire(&pods).is_none());
        let granted = first.granted.try_recv().unwrap();
        assert!(second.granted.try_recv().is_err());
        drop(granted);
        assert!(second.granted.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_was_granted_to_one_who_left_goes_to_the_next() {
        let (workload, pods) = narrow();
        let held = workload.acquire(&pods).unwrap();
        let first = workload.enqueue(Instant::now(), 9).unwrap();
        let mut second = workload.enqueue(Instant::now(), 9).unwrap();
        drop(held);
        drop(first);
        assert!(second.granted.try_recv().is_ok());
        drop(second);
        assert_eq!((workload.demand().waiting, pods[0].in_flight()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_was_not_used_closes_no_circuit_breaker() {
        let (workload, pods) = narrow();
        let held = workload.acquire(&pods).unwrap();
        pods[0].unreachable(workload.clock.now());
        drop(held);
        assert!(workload.acquire(&pods).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_what_is_waited_for_is_felt_and_the_old_place_takes_nobody_elses() {
        let (workload, pods) = narrow();
        let held = workload.acquire(&pods).unwrap();
        let mut old = workload.enqueue(Instant::now(), 9).unwrap();
        workload.set_pods(pods.clone(), true);
        assert!(matches!(old.granted.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        let mut new = workload.enqueue(Instant::now(), 9).unwrap();
        drop(old);
        drop(held);
        assert!(new.granted.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_counted_as_requests_times_time() {
        let (workload, pods) = narrow();
        let held = workload.acquire(&pods).unwrap();
        let first = workload.enqueue(Instant::now(), 2).unwrap();
        advance(Duration::from_millis(300)).await;
        let second = workload.enqueue(Instant::now(), 2).unwrap();
        assert!(workload.enqueue(Instant::now(), 2).is_none());
        advance(Duration::from_millis(100)).await;
        drop(first);
        advance(Duration::from_millis(50)).await;
        let expected = QueueDemand { waiting: 1, waited: Duration::from_millis(550), refused: 0, halted: 0 };
        assert_eq!(workload.demand(), expected);
        drop((second, held));
        advance(Duration::from_secs(9)).await;
        assert_eq!(workload.demand(), QueueDemand { waiting: 0, ..expected });
    }
}
