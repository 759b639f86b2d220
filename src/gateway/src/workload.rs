//! One workload as its requests share it: who waits for room, and what was counted. It outlives every change of its object.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use identity::{KeySet, Tokens};
use jiff::Timestamp;
use tokio::{sync::oneshot, time::Instant};

use super::{
    balance,
    budget::Budget,
    clock::{Clock, random},
    object::Kind,
    pod::Pod,
    queue::Queue,
    sessions::Tag,
};

/// One workload.
#[derive(Debug)]
pub(super) struct Workload {
    /// Its kind.
    pub(super) kind: Kind,
    /// Its namespace.
    pub(super) namespace: Box<str>,
    /// Its name.
    pub(super) name: Box<str>,
    /// As requests name it to a sidecar, which serves one workload: `agent/default/weather`.
    pub(super) named: Box<str>,
    /// When an answer below 500 was last relayed from it, in milliseconds since 1970; 0: never by this process.
    pub(super) invoked_at: AtomicI64,
    /// What may be tried again.
    pub(super) budget: Budget,
    /// What its callers are vouched for by.
    tokens: Tokens,
    clock: Clock,
    waiting: AtomicUsize,
    refused: AtomicU64,
    halted: AtomicU64,
    /// Whether its Pods are being asked whether they can serve.
    in_flight: AtomicBool,
    room: Mutex<Room>,
}

#[derive(Debug)]
struct Room {
    queue: Queue<oneshot::Sender<Lease>>,
    pods: Arc<[Arc<Pod>]>,
    /// The number of those who wait, integrated over time up to `since`.
    waited: Duration,
    since: Instant,
}

/// A slot of a Pod. Dropping it gives it back, and whoever is next gets it.
#[derive(Debug)]
pub(super) struct Lease {
    workload: Arc<Workload>,
    /// Whose slot it is.
    pub(super) pod: Arc<Pod>,
    /// Whether the Pod has room for another one when this one is given back.
    served: bool,
}

/// The right to ask the workload's Pods whether they can serve, which one task has at a time. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Flight(Arc<Workload>);

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct Place {
    workload: Arc<Workload>,
    number: u64,
    /// Gets the slot. It is closed when what is waited for has changed.
    pub(super) granted: oneshot::Receiver<Lease>,
}

/// What is waited for and was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    /// Requests that wait now.
    pub(super) waiting: usize,
    /// Their number integrated over time.
    pub(super) waited: Duration,
    /// Requests that were refused for want of room.
    pub(super) refused: u64,
    /// Requests that were refused because the workload is Failed and has no Pod, which a ready Pod would end.
    pub(super) halted: u64,
}

impl Workload {
    /// One for which nobody has asked yet.
    pub(super) fn new(kind: Kind, namespace: &str, name: &str, clock: Clock) -> Arc<Self> {
        let room = Room { queue: Queue::default(), pods: Arc::new([]), waited: Duration::ZERO, since: Instant::now() };
        Arc::new(Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            named: format!("{}/{namespace}/{name}", kind.name().to_lowercase()).into(),
            invoked_at: AtomicI64::new(0),
            budget: Budget::default(),
            tokens: Tokens::default(),
            clock,
            waiting: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            halted: AtomicU64::new(0),
            in_flight: AtomicBool::new(false),
            room: Mutex::new(room),
        })
    }

    /// A slot of one of these Pods, if there is room and nobody waits for it.
    pub(super) fn take(self: &Arc<Self>, pods: &[Arc<Pod>]) -> Option<Lease> {
        if self.waiting.load(Relaxed) > 0 {
            return None;
        }
        balance::take(pods, self.clock.now(), random()).map(|pod| self.lease(pod))
    }

    /// A slot of a Pod that was not tried yet, if there is room and nobody waits for it.
    pub(super) fn take_other(self: &Arc<Self>, pods: &[Arc<Pod>], tried: &[Tag]) -> Option<Lease> {
        if self.waiting.load(Relaxed) > 0 {
            return None;
        }
        let now = self.clock.now();
        let pod = pods.iter().find(|pod| !tried.contains(&pod.tag) && pod.take(now))?;
        Some(self.lease(pod.clone()))
    }

    /// A slot of this very Pod.
    pub(super) fn enter(self: &Arc<Self>, pod: &Arc<Pod>) -> Lease {
        pod.enter();
        self.lease(pod.clone())
    }

    /// A place in the queue for a request that arrived at this time; `None`: as many as `most` wait already.
    pub(super) fn join(self: &Arc<Self>, arrived: Instant, most: usize) -> Option<Place> {
        let (sender, granted) = oneshot::channel();
        let number = {
            let mut room = self.room();
            if room.queue.len() >= most {
                return None;
            }
            self.settle(&mut room);
            let number = room.queue.push(arrived, sender);
            self.waiting.store(room.queue.len(), Relaxed);
            number
        };
        // Room may have come between the look for it and the joining.
        self.dispatch();
        Some(Place { workload: self.clone(), number, granted })
    }

    /// Gives slots to those who wait, as long as there is room.
    pub(super) fn dispatch(self: &Arc<Self>) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        let mut room = self.room();
        self.settle(&mut room);
        while room.queue.len() > 0
            && let Some(pod) = balance::take(&room.pods, self.clock.now(), random())
        {
            let mut lease = self.lease(pod);
            loop {
                let Some(next) = room.queue.next(Instant::now()) else {
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
    pub(super) fn change(self: &Arc<Self>, pods: Arc<[Arc<Pod>]>, anew: bool) {
        let mut room = self.room();
        room.pods = pods;
        if anew {
            self.settle(&mut room);
            room.queue.clear();
            self.waiting.store(0, Relaxed);
        }
        drop(room);
        self.dispatch();
    }

    /// Counts a request that was refused for want of room.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts a request that was refused because the workload is Failed, for a reason that a ready Pod would end.
    pub(super) fn refuse_halted(&self) {
        self.halted.fetch_add(1, Relaxed);
    }

    /// The token by which `keys` vouch for a caller.
    pub(super) fn token(&self, user: Option<&Arc<str>>, keys: &Arc<KeySet>) -> Arc<str> {
        self.tokens.of(user, keys, Instant::now(), || self.named.to_string())
    }

    /// Takes note that an answer below 500 was relayed from it.
    pub(super) fn invoked(&self) {
        self.invoked_at.fetch_max(Timestamp::now().as_millisecond(), Relaxed);
    }

    /// The right to ask its Pods, if nobody has it (single-flight).
    pub(super) fn fly(self: &Arc<Self>) -> Option<Flight> {
        let begins = !self.in_flight.load(Relaxed) && !self.in_flight.swap(true, Relaxed);
        begins.then(|| Flight(self.clone()))
    }

    /// Whether a request waits for it.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// What is waited for and was not given.
    pub(super) fn demand(&self) -> Demand {
        let mut room = self.room();
        self.settle(&mut room);
        let (refused, halted) = (self.refused.load(Relaxed), self.halted.load(Relaxed));
        Demand { waiting: room.queue.len(), waited: room.waited, refused, halted }
    }

    fn lease(self: &Arc<Self>, pod: Arc<Pod>) -> Lease {
        Lease { workload: self.clone(), pod, served: true }
    }

    /// Brings what grows with time up to now.
    fn settle(&self, room: &mut Room) {
        let now = Instant::now();
        room.waited += (now - room.since) * u32::try_from(room.queue.len()).unwrap_or(u32::MAX);
        room.since = now;
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
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

impl Flight {
    /// Whose Pods are asked.
    pub(super) fn workload(&self) -> &Arc<Workload> {
        &self.0
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.in_flight.store(false, Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pod.release(self.served, self.workload.clock.now());
        if self.served {
            self.workload.dispatch();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut room = self.workload.room();
            self.workload.settle(&mut room);
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
    fn narrow() -> (Arc<Workload>, Arc<[Arc<Pod>]>) {
        let workload = Workload::new(Kind::Agent, "ns", "a", Clock::new());
        let pods: Arc<[Arc<Pod>]> = Arc::new([Arc::new(Pod::new(SocketAddr::from(([127, 0, 0, 1], 1)), 1))]);
        workload.change(pods.clone(), false);
        (workload, pods)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_goes_to_who_is_next_and_nobody_passes_those_who_wait() {
        let (workload, pods) = narrow();
        let held = workload.take(&pods).unwrap();
        let mut first = workload.join(Instant::now(), 9).unwrap();
        advance(Duration::from_millis(1)).await;
        let mut second = workload.join(Instant::now(), 9).unwrap();
        drop(held);
        assert!(workload.take(&pods).is_none());
        let granted = first.granted.try_recv().unwrap();
        assert!(second.granted.try_recv().is_err());
        drop(granted);
        assert!(second.granted.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_was_granted_to_one_who_left_goes_to_the_next() {
        let (workload, pods) = narrow();
        let held = workload.take(&pods).unwrap();
        let first = workload.join(Instant::now(), 9).unwrap();
        let mut second = workload.join(Instant::now(), 9).unwrap();
        drop(held);
        drop(first);
        assert!(second.granted.try_recv().is_ok());
        drop(second);
        assert_eq!((workload.demand().waiting, pods[0].in_flight()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_what_is_waited_for_is_felt_and_the_old_place_takes_nobody_elses() {
        let (workload, pods) = narrow();
        let held = workload.take(&pods).unwrap();
        let mut old = workload.join(Instant::now(), 9).unwrap();
        workload.change(pods.clone(), true);
        assert!(matches!(old.granted.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        let mut new = workload.join(Instant::now(), 9).unwrap();
        drop(old);
        drop(held);
        assert!(new.granted.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_counted_as_requests_times_time() {
        let (workload, pods) = narrow();
        let held = workload.take(&pods).unwrap();
        let first = workload.join(Instant::now(), 2).unwrap();
        advance(Duration::from_millis(300)).await;
        let second = workload.join(Instant::now(), 2).unwrap();
        assert!(workload.join(Instant::now(), 2).is_none());
        advance(Duration::from_millis(100)).await;
        drop(first);
        advance(Duration::from_millis(50)).await;
        let expected = Demand { waiting: 1, waited: Duration::from_millis(550), refused: 0, halted: 0 };
        assert_eq!(workload.demand(), expected);
        drop((second, held));
        advance(Duration::from_secs(9)).await;
        assert_eq!(workload.demand(), Demand { waiting: 0, ..expected });
    }
}
