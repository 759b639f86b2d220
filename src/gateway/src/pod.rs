//! One Pod, as this gateway knows it: how busy it is, and connections to it.
//!
//! How busy: what this gateway has in flight there, and what others have, which the Pod's sidecar says with each answer. A
//! Pod that refused is taken for full until it answers something else, or for a moment.

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

/// How long an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle connections that one thread keeps at most.
const MOST_IDLE: usize = 256;
/// Longest wait for a connection. A SYN that was lost is sent again after one second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long what others have in flight is believed, in milliseconds.
const LOAD_TTL: u64 = 100;
/// How long nobody else asks a Pod that may have room again, in milliseconds.
const PROBE_INTERVAL: u64 = 100;
/// How long a Pod to which no connection could be made is avoided, in milliseconds.
const UNREACHABLE_PENALTY: u64 = 500;

/// One Pod.
#[derive(Debug)]
pub(super) struct UpstreamPod {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// By which its sessions name it.
    pub(super) tag: PodTag,
    /// Whether it is taken for ready by its own word alone.
    pub(super) is_self_reported: AtomicBool,
    in_flight: AtomicU32,
    /// How many it takes; 0: any number.
    cap: AtomicU32,
    /// What others had in flight there, and until when that is believed.
    others: AtomicU32,
    others_until: AtomicU64,
    /// What was in flight here before the last requests ended, and until when that counts.
    recent_in_flight: AtomicU32,
    recent_until: AtomicU64,
    full_until: AtomicU64,
    pools: [ConnectionPool; MAX_POOLS],
}

/// Connections that one thread made. Another thread could use them, but each of their bytes would wake both.
#[derive(Debug, Default)]
struct ConnectionPool {
    idle: Mutex<PooledConnections>,
    /// Whether there may be any.
    filled: AtomicBool,
}

#[derive(Debug, Default)]
struct PooledConnections {
    connections: Vec<(Connection<TcpStream>, Instant)>,
    closed: bool,
}

/// The most threads that serve connections.
pub(super) const MAX_POOLS: usize = 8;

thread_local! {
    static POOL: Cell<usize> = const { Cell::new(0) };
}

/// Gives this thread its own pool of every Pod; numbers count from 0 to [`POOLS`] - 1.
pub(super) fn use_pool(number: usize) {
    POOL.set(number % MAX_POOLS);
}

/// What a Pod's sidecar says with an answer: `in flight/cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadHeader {
    in_flight: u32,
    cap: u32,
}

impl LoadHeader {
    /// Reads `x-recif-load`.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (in_flight, cap) = str::from_utf8(value).ok()?.split_once('/')?;
        Some(Self { in_flight: in_flight.parse().ok()?, cap: cap.parse().ok()? })
    }
}

impl UpstreamPod {
    /// A Pod of which nothing is known but how many requests it should take (0: any number).
    pub(super) fn new(address: SocketAddr, cap: u32) -> Self {
        Self {
            address,
            tag: PodTag::default(),
            is_self_reported: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            cap: AtomicU32::new(cap),
            others: AtomicU32::new(0),
            others_until: AtomicU64::new(0),
            recent_in_flight: AtomicU32::new(0),
            recent_until: AtomicU64::new(0),
            full_until: AtomicU64::new(0),
            pools: Default::default(),
        }
    }

    /// The Pod with this uid.
    pub(super) fn with_uid(self, uid: &str) -> Self {
        Self { tag: PodTag::of(uid), ..self }
    }

    /// Takes a slot whether or not there is room: what belongs to this Pod can go nowhere else.
    pub(super) fn acquire_pinned(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Requests that this gateway has in flight there.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// How busy it is: smaller is less; `None`: it has no room.
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

    /// Takes one of its slots, if there is room.
    pub(super) fn try_acquire(&self, now: u64) -> bool {
        if self.load(now).is_none() {
            return false;
        }
        let full_until = self.full_until.load(Relaxed);
        // Only one finds out whether there is room again; the others follow when it was answered.
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

    /// Gives a slot back. `served`: there is room for another now.
    pub(super) fn release(&self, served: bool, now: u64) {
        let before = self.in_flight.fetch_sub(1, Relaxed);
        if before >= self.recent_in_flight.load(Relaxed) || now >= self.recent_until.load(Relaxed) {
            self.recent_in_flight.store(before, Relaxed);
            self.recent_until.store(now + LOAD_TTL, Relaxed);
        }
        if served {
            self.full_until.store(0, Relaxed);
        }
    }

    /// It answered a request of this gateway, which is still in flight, and said this of itself.
    pub(super) fn answered(&self, reported: Option<LoadHeader>, now: u64) {
        if let Some(LoadHeader { in_flight, cap }) = reported {
            // Between its saying so and our hearing it requests of ours have ended. They must not be taken for others.
            let lately = if now < self.recent_until.load(Relaxed) { self.recent_in_flight.load(Relaxed) } else { 0 };
            self.cap.store(cap, Relaxed);
            self.others.store(in_flight.saturating_sub(lately.max(self.in_flight())), Relaxed);
            self.others_until.store(now + LOAD_TTL, Relaxed);
        }
        self.full_until.store(0, Relaxed);
    }

    /// It has no room.
    pub(super) fn refused(&self, now: u64) {
        self.full_until.store(now + random_between(50, 100), Relaxed);
    }

    /// No connection to it could be made.
    pub(super) fn unreachable(&self, now: u64) {
        self.full_until.store(now + UNREACHABLE_PENALTY, Relaxed);
        self.close_idle();
    }

    /// An idle connection that looks alive.
    pub(super) fn reuse(&self) -> Option<Connection<TcpStream>> {
        let pool = &self.pools[POOL.get()];
        if !pool.filled.load(Relaxed) {
            return None;
        }
        let mut idle = pool.lock();
        while let Some((side, since)) = idle.connections.pop() {
            if since.elapsed() >= IDLE_TIMEOUT {
                // The others have been idle for longer.
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

    /// A new connection.
    ///
    /// # Errors
    /// Nobody accepts.
    pub(super) async fn connect(&self) -> io::Result<Connection<TcpStream>> {
        connect(self.address, CONNECT_TIMEOUT).await
    }

    /// Keeps a connection for another request.
    pub(super) fn keep(&self, side: Connection<TcpStream>) {
        let pool = &self.pools[POOL.get()];
        let mut idle = pool.lock();
        if !idle.closed && idle.connections.len() < MOST_IDLE {
            idle.connections.push((side, Instant::now()));
            pool.filled.store(true, Relaxed);
        }
    }

    /// Says whether connections are kept. One that is not ready keeps none.
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
        // Four answers come at the same time, and each was sent while all four were in flight.
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
}
