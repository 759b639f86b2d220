//! Slots of a workload's Pods, and the queue of the requests that wait for one.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::{
    balance,
    clock::{Clock, random},
    pod::UpstreamPod,
    queue::AdaptiveLifo,
    sessions::PodTag,
};

/// Slots of a workload and the queue for them.
///
/// Invariant: `waiting` is the length of the queue, and is written only under the lock of `queue_state`.
#[derive(Debug)]
pub(super) struct SlotQueue {
    /// Clock of the circuit breakers.
    clock: Clock,
    waiting: AtomicUsize,
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

/// Permit to send one request to a Pod. Dropping it releases the slot, and the next queued request gets it.
#[derive(Debug)]
pub(super) struct SlotPermit {
    slots: Arc<SlotQueue>,
    /// Pod that the slot belongs to.
    pub(super) pod: Arc<UpstreamPod>,
    end: SlotEnd,
}

/// Finding about the Pod when a slot is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotEnd {
    /// None: the slot was not used, or the request ended without a whole response.
    Unknown,
    /// The Pod has responded in full and so has room.
    Served,
    /// The Pod takes no request now, or the queue is locked: no queued request gets the slot.
    Withheld,
}

/// Place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct QueueTicket {
    slots: Arc<SlotQueue>,
    number: u64,
    /// Receives the slot. Closed if the queue was cleared because the state of the workload changed.
    pub(super) granted: oneshot::Receiver<SlotPermit>,
}

impl SlotQueue {
    /// Creates the queue of a workload without Pods.
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        let state = QueueState {
            queue: AdaptiveLifo::default(),
            pods: Arc::new([]),
            waited: Duration::ZERO,
            since: Instant::now(),
        };
        Arc::new(Self { clock, waiting: AtomicUsize::new(0), queue_state: Mutex::new(state) })
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
            let mut state = self.queue_state();
            if state.queue.len() >= most {
                return None;
            }
            self.accrue_wait(&mut state);
            let number = state.queue.push(arrived, sender);
            self.waiting.store(state.queue.len(), Relaxed);
            number
        };
        // A slot may have become free between the check for room and the enqueue.
        self.dispatch();
        Some(QueueTicket { slots: self.clone(), number, granted })
    }

    /// Grants slots to queued requests as long as there is room.
    pub(super) fn dispatch(self: &Arc<Self>) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        let mut state = self.queue_state();
        self.accrue_wait(&mut state);
        while state.queue.len() > 0
            && let Some(pod) = balance::acquire(&state.pods, self.clock.now(), random())
        {
            let mut permit = self.permit(pod);
            loop {
                let Some(next) = state.queue.pop(Instant::now()) else {
                    // Dropping the permit would call this again while the queue is locked.
                    permit.withhold();
                    break;
                };
                match next.send(permit) {
                    Ok(()) => break,
                    // The receiver was dropped: this request has just left.
                    Err(unwanted) => permit = unwanted,
                }
            }
        }
        self.waiting.store(state.queue.len(), Relaxed);
    }

    /// Replaces the Pods. `anew` clears the queue, so that waiting requests check the workload's state again.
    pub(super) fn set_pods(self: &Arc<Self>, pods: Arc<[Arc<UpstreamPod>]>, anew: bool) {
        let mut state = self.queue_state();
        state.pods = pods;
        if anew {
            self.accrue_wait(&mut state);
            state.queue.clear();
            self.waiting.store(0, Relaxed);
        }
        drop(state);
        self.dispatch();
    }

    /// Reports whether a request waits for the workload.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Returns the number of queued requests, and the time integral of it up to now.
    pub(super) fn backlog(&self) -> (usize, Duration) {
        let mut state = self.queue_state();
        self.accrue_wait(&mut state);
        (state.queue.len(), state.waited)
    }

    fn permit(self: &Arc<Self>, pod: Arc<UpstreamPod>) -> SlotPermit {
        SlotPermit { slots: self.clone(), pod, end: SlotEnd::Unknown }
    }

    /// Advances the time integral to now. Must be called before the queue length changes.
    fn accrue_wait(&self, state: &mut QueueState) {
        let now = Instant::now();
        state.waited += (now - state.since) * u32::try_from(state.queue.len()).unwrap_or(u32::MAX);
        state.since = now;
    }

    fn queue_state(&self) -> MutexGuard<'_, QueueState> {
        self.queue_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotPermit {
    /// Releases the slot: the Pod has responded in full.
    pub(super) fn served(mut self) {
        self.end = SlotEnd::Served;
    }

    /// Releases the slot: the Pod has no room.
    pub(super) fn refused(mut self, now: u64) {
        self.end = SlotEnd::Withheld;
        self.pod.refused(now);
    }

    /// Releases the slot: no connection to the Pod could be made.
    pub(super) fn unreachable(mut self, now: u64) {
        self.end = SlotEnd::Withheld;
        self.pod.unreachable(now);
    }

    /// Releases the slot without granting it to a queued request: the queue is locked.
    fn withhold(mut self) {
        self.end = SlotEnd::Withheld;
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.pod.release(self.end == SlotEnd::Served, self.slots.clock.now());
        if self.end != SlotEnd::Withheld {
            self.slots.dispatch();
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        {
            let mut state = self.slots.queue_state();
            self.slots.accrue_wait(&mut state);
            state.queue.remove(self.number);
            self.slots.waiting.store(state.queue.len(), Relaxed);
        }
        // A slot that was granted and never taken is released when the receiver is dropped, after this.
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::time::advance;

    use super::*;

    /// Creates the slots of a workload with one Pod whose cap is one.
    fn narrow() -> (Arc<SlotQueue>, Arc<[Arc<UpstreamPod>]>) {
        let slots = SlotQueue::new(Clock::new());
        let pods: Arc<[Arc<UpstreamPod>]> =
            Arc::new([Arc::new(UpstreamPod::new(SocketAddr::from(([127, 0, 0, 1], 1)), 1))]);
        slots.set_pods(pods.clone(), false);
        (slots, pods)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_goes_to_the_next_request_and_none_passes_those_that_wait() {
        let (slots, pods) = narrow();
        let held = slots.acquire(&pods).unwrap();
        let mut first = slots.enqueue(Instant::now(), 9).unwrap();
        advance(Duration::from_millis(1)).await;
        let mut second = slots.enqueue(Instant::now(), 9).unwrap();
        drop(held);
        assert!(slots.acquire(&pods).is_none());
        let granted = first.granted.try_recv().unwrap();
        assert!(second.granted.try_recv().is_err());
        drop(granted);
        assert!(second.granted.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_granted_to_a_request_that_left_goes_to_the_next() {
        let (slots, pods) = narrow();
        let held = slots.acquire(&pods).unwrap();
        let first = slots.enqueue(Instant::now(), 9).unwrap();
        let mut second = slots.enqueue(Instant::now(), 9).unwrap();
        drop(held);
        drop(first);
        assert!(second.granted.try_recv().is_ok());
        drop(second);
        assert_eq!((slots.backlog().0, pods[0].in_flight()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_was_not_used_closes_no_circuit_breaker() {
        let (slots, pods) = narrow();
        let held = slots.acquire(&pods).unwrap();
        pods[0].unreachable(slots.clock.now());
        drop(held);
        assert!(slots.acquire(&pods).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cleared_queue_closes_its_tickets_and_an_old_ticket_takes_no_slot() {
        let (slots, pods) = narrow();
        let held = slots.acquire(&pods).unwrap();
        let mut old = slots.enqueue(Instant::now(), 9).unwrap();
        slots.set_pods(pods.clone(), true);
        assert!(matches!(old.granted.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        let mut new = slots.enqueue(Instant::now(), 9).unwrap();
        drop(old);
        drop(held);
        assert!(new.granted.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_counted_as_requests_times_time() {
        let (slots, pods) = narrow();
        let held = slots.acquire(&pods).unwrap();
        let first = slots.enqueue(Instant::now(), 2).unwrap();
        advance(Duration::from_millis(300)).await;
        let second = slots.enqueue(Instant::now(), 2).unwrap();
        assert!(slots.enqueue(Instant::now(), 2).is_none());
        advance(Duration::from_millis(100)).await;
        drop(first);
        advance(Duration::from_millis(50)).await;
        assert_eq!(slots.backlog(), (1, Duration::from_millis(550)));
        drop((second, held));
        advance(Duration::from_secs(9)).await;
        assert_eq!(slots.backlog(), (0, Duration::from_millis(550)));
    }
}
