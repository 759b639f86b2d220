//! State of one Pod as this gateway knows it: its load, its circuit breaker, and its pools of idle connections.
//!
//! The load is what this gateway has in flight there plus what other gateways have, which the Pod's sidecar reports
//! with each response in `x-recif-load`.
//!
//! A [circuit breaker](https://martinfowler.com/bliki/CircuitBreaker.html) ejects a Pod from load balancing: for 50 to
//! 100 ms after it refused a request for want of room, for 500 ms after it accepted no connection (open). Then one
//! request per 100 ms probes it (half-open), until a response closes the breaker. The end of an older response closes it
//! too, unless no connection could be made meanwhile. Requests of a session bypass it.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http1::{Connection, connect};
use tokio::{net::TcpStream, time::Instant};

use super::{clock::random_between, sessions::PodTag};

/// Longest time for which an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Most idle connections per thread.
const MOST_IDLE: usize = 256;
/// Longest wait for a connection. A lost SYN is retransmitted after one second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which a load report and a recent peak of this gateway are valid, in milliseconds.
const LOAD_TTL: u64 = 100;
/// Shortest time between two probes of a half-open circuit breaker, in milliseconds.
const PROBE_INTERVAL: u64 = 100;
/// Time for which the circuit breaker is open after a failed connection attempt, in milliseconds.
const UNREACHABLE_PENALTY: u64 = 500;

/// Pod that serves a workload, as an upstream of this gateway.
///
/// Invariant: `in_flight` is the number of slots that this gateway holds. Only [`Self::acquire_pinned`] and a lowered
/// cap make it exceed `cap`.
#[derive(Debug)]
pub(super) struct UpstreamPod {
    /// Address at which the Pod listens.
    pub(super) address: SocketAddr,
    /// Tag by which session ids name the Pod.
    pub(super) tag: PodTag,
    /// Run of its process that has reported totals of tokens; 0: not known.
    pub(super) run: AtomicU64,
    /// Set if the Pod counts as ready only by the report of its sidecar, before its EndpointSlice.
    pub(super) is_self_reported: AtomicBool,
    /// Requests that this gateway has in flight there.
    in_flight: AtomicU32,
    /// Concurrency cap; 0 for none.
    cap: AtomicU32,
    /// Requests that other gateways have in flight there, as last reported.
    others: AtomicU32,
    /// Time until which `others` is valid.
    others_until: AtomicU64,
    /// Recent peak of `in_flight`: its value before the last requests ended.
    recent_in_flight: AtomicU32,
    /// Time until which `recent_in_flight` is valid.
    recent_until: AtomicU64,
    /// State of the circuit breaker: 0 for closed, a future time for open, a past time for half-open.
    full_until: AtomicU64,
    /// Set while the circuit breaker is open because no connection could be made: the end of an older request then says
    /// nothing about the Pod.
    is_unreachable: AtomicBool,
    pools: [ConnectionPool; MAX_POOLS],
}

/// Idle connections that one thread made. Another thread could use them, but then each of their bytes would wake both
/// threads.
#[derive(Debug, Default)]
struct ConnectionPool {
    idle: Mutex<PooledConnections>,
    /// Set if `idle` may hold connections: a check without the lock.
    filled: AtomicBool,
}

#[derive(Debug, Default)]
struct PooledConnections {
    connections: Vec<(Connection<TcpStream>, Instant)>,
    closed: bool,
}

/// Most threads that serve connections.
pub(super) const MAX_POOLS: usize = 8;

thread_local! {
    static POOL: Cell<usize> = const { Cell::new(0) };
}

/// Assigns this thread its own pool of every Pod. `number` counts from 0 to [`MAX_POOLS`] - 1.
pub(super) fn use_pool(number: usize) {
    POOL.set(number % MAX_POOLS);
}

/// Load report of a Pod's sidecar: `in flight/cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadHeader {
    in_flight: u32,
    cap: u32,
}

impl LoadHeader {
    /// Parses the value of `x-recif-load`.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (in_flight, cap) = str::from_utf8(value).ok()?.split_once('/')?;
        Some(Self { in_flight: in_flight.parse().ok()?, cap: cap.parse().ok()? })
    }
}

impl UpstreamPod {
    /// Creates a Pod of which only the configured cap is known (0 for none).
    pub(super) fn new(address: SocketAddr, cap: u32) -> Self {
        Self {
            address,
            tag: PodTag::default(),
            run: AtomicU64::new(0),
            is_self_reported: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            cap: AtomicU32::new(cap),
            others: AtomicU32::new(0),
            others_until: AtomicU64::new(0),
            recent_in_flight: AtomicU32::new(0),
            recent_until: AtomicU64::new(0),
            full_until: AtomicU64::new(0),
            is_unreachable: AtomicBool::new(false),
            pools: Default::default(),
        }
    }

    /// Sets the session tag, which is derived from the uid.
    pub(super) fn with_uid(self, uid: &str) -> Self {
        Self { tag: PodTag::of(uid), ..self }
    }

    /// Takes a slot whether or not there is room: a request of a session cannot go to another Pod.
    pub(super) fn acquire_pinned(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Returns the number of requests that this gateway has in flight there.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Returns the relative load, for comparison between Pods, or `None` if the Pod is full or its circuit breaker is
    /// open.
    pub(super) fn load(&self, now: u64) -> Option<u64> {
        let cap = self.cap.load(Relaxed);
        let mut busy = u64::from(self.in_flight());
        if now < self.others_until.load(Relaxed) {
            busy += u64::from(self.others.load(Relaxed));
        }
        if now < self.full_until.load(Relaxed) || (cap != 0 && busy >= cap.into()) {
            return None;
        }
        Some(busy * 1024 / u64::from(cap.max(1)))
    }

    /// Takes a slot if the Pod has room.
    pub(super) fn try_acquire(&self, now: u64) -> bool {
        if self.load(now).is_none() {
            return false;
        }
        let full_until = self.full_until.load(Relaxed);
        // Half-open: one request probes the Pod; the others follow once it was answered.
        if full_until != 0
            && self.full_until.compare_exchange(full_until, now + PROBE_INTERVAL, Relaxed, Relaxed).is_err()
        {
            return false;
        }
        let cap = self.cap.load(Relaxed);
        let before = self.in_flight.fetch_add(1, Relaxed);
        if cap != 0 && before >= cap {
            self.in_flight.fetch_sub(1, Relaxed);
            return false;
        }
        true
    }

    /// Releases a slot. `served` says that the Pod has responded in full and so has room for another request, which closes
    /// the circuit breaker of a Pod that only refused.
    pub(super) fn release(&self, served: bool, now: u64) {
        let before = self.in_flight.fetch_sub(1, Relaxed);
        if before >= self.recent_in_flight.load(Relaxed) || now >= self.recent_until.load(Relaxed) {
            self.recent_in_flight.store(before, Relaxed);
            self.recent_until.store(now + LOAD_TTL, Relaxed);
        }
        let full_until = self.full_until.load(Relaxed);
        if served && full_until != 0 && !self.is_unreachable.load(Relaxed) {
            // Fails if another request has found something else meanwhile.
            let _ = self.full_until.compare_exchange(full_until, 0, Relaxed, Relaxed);
        }
    }

    /// Records that the Pod responded to a request of this gateway, which is still in flight, and its load report.
    /// Closes the circuit breaker.
    pub(super) fn answered(&self, reported: Option<LoadHeader>, now: u64) {
        if let Some(LoadHeader { in_flight, cap }) = reported {
            // Requests of this gateway may have ended since the sidecar counted them. They must not be taken for
            // requests of others.
            let lately = if now < self.recent_until.load(Relaxed) { self.recent_in_flight.load(Relaxed) } else { 0 };
            self.cap.store(cap, Relaxed);
            self.others.store(in_flight.saturating_sub(lately.max(self.in_flight())), Relaxed);
            self.others_until.store(now + LOAD_TTL, Relaxed);
        }
        self.is_unreachable.store(false, Relaxed);
        self.full_until.store(0, Relaxed);
    }

    /// Records that the Pod refused a request for want of room: opens the circuit breaker for 50 to 100 ms.
    pub(super) fn refused(&self, now: u64) {
        self.is_unreachable.store(false, Relaxed);
        self.full_until.store(now + random_between(50, 100), Relaxed);
    }

    /// Records that no connection to the Pod could be made: opens the circuit breaker and closes the idle connections.
    pub(super) fn unreachable(&self, now: u64) {
        self.is_unreachable.store(true, Relaxed);
        self.full_until.store(now + UNREACHABLE_PENALTY, Relaxed);
        self.close_idle();
    }

    /// Takes an idle connection that looks alive from this thread's pool.
    pub(super) fn reuse(&self) -> Option<Connection<TcpStream>> {
        let pool = &self.pools[POOL.get()];
        if !pool.filled.load(Relaxed) {
            return None;
        }
        let mut idle = pool.lock();
        while let Some((side, since)) = idle.connections.pop() {
            if since.elapsed() >= IDLE_TIMEOUT {
                // The other connections have been idle for longer.
                idle.connections.clear();
                break;
            }
            if side.is_silent() {
                return Some(side);
            }
        }
        pool.filled.store(false, Relaxed);
        None
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// The Pod does not accept the connection in time.
    pub(super) async fn connect(&self) -> io::Result<Connection<TcpStream>> {
        connect(self.address, CONNECT_TIMEOUT).await
    }

    /// Returns a connection to this thread's pool.
    pub(super) fn keep(&self, side: Connection<TcpStream>) {
        let pool = &self.pools[POOL.get()];
        let mut idle = pool.lock();
        if !idle.closed && idle.connections.len() < MOST_IDLE {
            idle.connections.push((side, Instant::now()));
            pool.filled.store(true, Relaxed);
        }
    }

    /// Enables or disables the pools. A Pod that is not ready keeps no connections.
    pub(super) fn set_pooling(&self, keeps: bool) {
        for pool in &self.pools {
            let mut idle = pool.lock();
            idle.closed = !keeps;
            if !keeps {
                idle.connections.clear();
            }
        }
    }

    /// Closes connections that were idle for too long.
    pub(super) fn sweep(&self) {
        for pool in self.pools.iter().filter(|pool| pool.filled.load(Relaxed)) {
            pool.lock().connections.retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
        }
    }

    fn close_idle(&self) {
        self.pools.iter().for_each(|pool| pool.lock().connections.clear());
    }
}

impl ConnectionPool {
    fn lock(&self) -> MutexGuard<'_, PooledConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cap: u32) -> UpstreamPod {
        UpstreamPod::new(SocketAddr::from(([127, 0, 0, 1], 1)), cap)
    }

    #[test]
    fn the_load_is_what_is_in_flight_here_and_elsewhere() {
        let pod = pod(0);
        assert!(pod.try_acquire(0) && pod.try_acquire(0));
        pod.answered(LoadHeader::read(b"3/4"), 1000);
        assert_eq!(pod.load(1000), Some(3 * 256), "two here and one elsewhere");
        assert!(pod.try_acquire(1000) && !pod.try_acquire(1000), "others count while the news of them is fresh");
        pod.release(true, 1000);
        assert_eq!(pod.load(1000 + LOAD_TTL), Some(2 * 256));
        assert_eq!((LoadHeader::read(b"x/4"), LoadHeader::read(b"3"), LoadHeader::read(b"")), (None, None, None));
    }

    #[test]
    fn what_has_just_ended_here_is_not_taken_for_others() {
        let pod = pod(4);
        assert!((0..4).all(|_| pod.try_acquire(0)));
        // Four responses arrive at the same time, and each was sent while all four requests were in flight.
        for _ in 0..3 {
            pod.answered(LoadHeader::read(b"4/4"), 1000);
            pod.release(true, 1000);
        }
        pod.answered(LoadHeader::read(b"4/4"), 1000);
        assert_eq!(pod.load(1000), Some(256));
        pod.answered(LoadHeader::read(b"4/4"), 1000 + LOAD_TTL);
        assert_eq!(pod.load(1000 + LOAD_TTL), None, "by then it would be others");
    }

    #[test]
    fn one_that_refused_is_full_for_a_moment_or_until_it_serves() {
        let pod = pod(3);
        assert!(pod.try_acquire(0));
        pod.refused(1000);
        assert_eq!((pod.load(1049), pod.load(1101).is_some()), (None, true));
        pod.release(false, 1000);
        assert_eq!(pod.load(1049), None);
        assert!(pod.try_acquire(2000) && !pod.try_acquire(2000), "one asks whether there is room again");
        pod.refused(2000);
        pod.release(true, 2000);
        assert_eq!(pod.load(2000), Some(0));
        pod.refused(3000);
        pod.answered(None, 3000);
        assert_eq!(pod.load(3000), Some(0));
    }
    #[test]
    fn the_end_of_an_older_request_does_not_make_an_unreachable_pod_available() {
        let pod = pod(0);
        assert!(pod.try_acquire(0) && pod.try_acquire(0));
        pod.unreachable(1000);
        pod.release(true, 1000);
        assert_eq!(pod.load(1000), None);
        pod.answered(None, 1000);
        pod.release(true, 1000);
        assert_eq!(pod.load(1000), Some(0));
        assert!(pod.try_acquire(1000));
        pod.refused(1000);
        pod.release(true, 1000);
        assert_eq!(pod.load(1000), Some(0), "one that refused can be reached");
    }
}
