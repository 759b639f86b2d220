//! One workload as its requests share it: who waits for room, and what was counted. It outlives every change of its object.

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
};

/// One workload.
#[derive(Debug)]
pub(super) struct WorkloadState {
    /// Its kind.
    pub(super) kind: RoutedKind,
    /// Its namespace.
    pub(super) namespace: Box<str>,
    /// Its name.
    pub(super) name: Box<str>,
    /// As requests name it to a sidecar, which serves one workload: `agent/default/weather`.
    pub(super) full_name: Box<str>,
    /// When an answer below 500 was last relayed from it, in milliseconds since 1970; 0: never by this process.
    pub(super) invoked_at: AtomicI64,
    /// What may be tried again.
    pub(super) budget: RetryBudget,
    /// What its callers are vouched for by.
    tokens: TokenCache,
    clock: Clock,
    waiting: AtomicUsize,
    refused: AtomicU64,
    halted: AtomicU64,
    /// Whether its Pods are being asked whether they can serve.
    in_flight: AtomicBool,
    queue_state: Mutex<QueueState>,
}

#[derive(Debug)]
struct QueueState {
    queue: AdaptiveLifo<oneshot::Sender<SlotPermit>>,
    pods: Arc<[Arc<UpstreamPod>]>,
    /// The number of those who wait, integrated over time up to `since`.
    waited: Duration,
    since: Instant,
}

/// A slot of a Pod. Dropping it gives it back, and whoever is next gets it.
#[derive(Debug)]
pub(super) struct SlotPermit {
    workload: Arc<WorkloadState>,
    /// Whose slot it is.
    pub(super) pod: Arc<UpstreamPod>,
    /// Whether the Pod has room for another one when this one is given back.
    served: bool,
}

/// The right to ask the workload's Pods whether they can serve, which one task has at a time. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct ProbePermit(Arc<WorkloadState>);

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct QueueTicket {
    workload: Arc<WorkloadState>,
    number: u64,
    /// Gets the slot. It is closed when what is waited for has changed.
    pub(super) granted: oneshot::Receiver<SlotPermit>,
}

/// What is waited for and was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueDemand {
    /// Requests that wait now.
    pub(super) waiting: usize,
    /// Their number integrated over time.
    pub(super) waited: Duration,
    /// Requests that were refused for want of room.
    pub(super) refused: u64,
    /// Requests that were refused because the workload is Failed and has no Pod, which a ready Pod would end.
    pub(super) halted: u64,
}

impl WorkloadState {
    /// One for which nobody has asked yet.
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

    /// A slot of one of these Pods, if there is room and nobody waits for it.
    pub(super) fn acquire(self: &Arc<Self>, pods: &[Arc<UpstreamPod>]) -> Option<SlotPermit> {
        if self.waiting.load(Relaxed) > 0 {
            return None;
        }
        balance::acquire(pods, self.clock.now(), random()).map(|pod| self.permit(pod))
    }

    /// A slot of a Pod that was not tried yet, if there is room and nobody waits for it.
    pub(super) fn acquire_other(self: &Arc<Self>, pods: &[Arc<UpstreamPod>], tried: &[PodTag]) -> Option<SlotPermit> {
        if self.waiting.load(Relaxed) > 0 {
            return None;
        }
        let now = self.clock.now();
        let pod = pods.iter().find(|pod| !tried.contains(&pod.tag) && pod.try_acquire(now))?;
        Some(self.permit(pod.clone()))
    }

    /// A slot of this very Pod.
    pub(super) fn acquire_pinned(self: &Arc<Self>, pod: &Arc<UpstreamPod>) -> SlotPermit {
        pod.acquire_pinned();
        self.permit(pod.clone())
    }

    /// A place in the queue for a request that arrived at this time; `None`: as many as `most` wait already.
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
        // Room may have come between the look for it and the joining.
        self.dispatch();
        Some(QueueTicket { workload: self.clone(), number, granted })
    }

    /// Gives slots to those who wait, as long as there is room.
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
                    // Dropping it as served would come back here, while the room is locked.
                    lease.served = false;
                    break;
                };
                match next.send(lease) {
                    Ok(()) => break,
                    // Who was next has just left.
                    Err(unwanted) => lease = unwanted,
                }
            }
        }
        self.waiting.store(room.queue.len(), Relaxed);
    }

    /// The Pods are these from now on. `anew`: those who wait are to look again at what they wait for.
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

    /// The token by which `keys` vouch for a caller.
    pub(super) fn token(&self, user: Option<&Arc<str>>, keys: &Arc<KeySet>) -> Arc<str> {
        self.tokens.get_or_sign(user, keys, Instant::now(), || self.full_name.to_string())
    }

    /// Takes note that an answer below 500 was relayed from it.
    pub(super) fn record_invocation(&self) {
        self.invoked_at.fetch_max(Timestamp::now().as_millisecond(), Relaxed);
    }

    /// The right to ask its Pods, if nobody has it (single-flight).
    pub(super) fn begin_probe(self: &Arc<Self>) -> Option<ProbePermit> {
        let begins = !self.in_flight.load(Relaxed) && !self.in_flight.swap(true, Relaxed);
        begins.then(|| ProbePermit(self.clone()))
    }

    /// Whether a request waits for it.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// What is waited for and was not given.
    pub(super) fn demand(&self) -> QueueDemand {
        let mut room = self.queue_state();
        self.accrue_wait(&mut room);
        let (refused, halted) = (self.refused.load(Relaxed), self.halted.load(Relaxed));
        QueueDemand { waiting: room.queue.len(), waited: room.waited, refused, halted }
    }

    fn permit(self: &Arc<Self>, pod: Arc<UpstreamPod>) -> SlotPermit {
        SlotPermit { workload: self.clone(), pod, served: true }
    }

    /// Brings what grows with time up to now.
    fn accrue_wait(&self, room: &mut QueueState) {
        let now = Instant::now();
        room.waited += (now - room.since) * u32::try_from(room.queue.len()).unwrap_or(u32::MAX);
        room.since = now;
    }

    fn queue_state(&self) -> MutexGuard<'_, QueueState> {
        self.queue_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotPermit {
    /// Gives it back: the Pod has no room.
    pub(super) fn refused(mut self, now: u64) {
        self.served = false;
        self.pod.refused(now);
    }

    /// Gives it back: no connection to the Pod could be made.
    pub(super) fn unreachable(mut self, now: u64) {
        self.served = false;
        self.pod.unreachable(now);
    }
}

impl ProbePermit {
    /// Whose Pods are asked.
    pub(super) fn workload(&self) -> &Arc<WorkloadState> {
        &self.0
    }
}

impl Drop for ProbePermit {
    fn drop(&mut self) {
        self.0.in_flight.store(false, Relaxed);
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.pod.release(self.served, self.workload.clock.now());
        if self.served {
            self.workload.dispatch();
        }
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
        // A slot that was granted and never taken is given back with the receiver, after this.
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::time::advance;

    use super::*;

    /// A workload with one Pod that takes one request.
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
