//! Connections to the workload. Idle ones are kept for a moment: common servers close theirs after five seconds.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::http1::{Side, connect};

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(2);
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest wait for a connection that is only to show that there is somebody.
const PROBE: Duration = Duration::from_secs(1);
/// Idle connections kept at most.
const POOL: usize = 256;

/// The workload's end.
#[derive(Debug)]
pub(super) struct Upstream {
    address: SocketAddr,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    /// Each with when it was used last, which only grows.
    connections: Vec<(Side<TcpStream>, Instant)>,
    /// Whether somebody closes those that nobody used for too long.
    is_watched: bool,
}

impl Upstream {
    /// Nothing is opened yet.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// An idle connection that looks alive.
    pub(super) fn reuse(&self, now: Instant) -> Option<Side<TcpStream>> {
        let mut idle = self.idle();
        while let Some((side, since)) = idle.connections.pop() {
            if now.saturating_duration_since(since) >= IDLE {
                // The others have been idle for longer.
                idle.connections.clear();
                return None;
            }
            if side.is_silent() {
                return Some(side);
            }
        }
        None
    }

    /// A new connection.
    ///
    /// # Errors
    /// Nobody accepts.
    pub(super) async fn connect(&self) -> io::Result<Side<TcpStream>> {
        connect(self.address, CONNECT).await
    }

    /// Keeps a connection for another request.
    pub(super) fn keep(self: &Arc<Self>, side: Side<TcpStream>, now: Instant) {
        let mut idle = self.idle();
        if idle.connections.len() < POOL {
            idle.connections.push((side, now));
        }
        if !std::mem::replace(&mut idle.is_watched, true) {
            let upstream = self.clone();
            tokio::spawn(async move { upstream.watch().await });
        }
    }

    /// Closes what nobody used for too long, until there is nothing left.
    async fn watch(&self) {
        loop {
            sleep(IDLE).await;
            let mut idle = self.idle();
            let now = Instant::now();
            idle.connections.retain(|(_, since)| now.saturating_duration_since(*since) < IDLE);
            if idle.connections.is_empty() {
                idle.is_watched = false;
                return;
            }
        }
    }

    /// Closes every idle connection.
    pub(super) fn forget(&self) {
        self.idle().connections.clear();
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody accepts connections.
    pub(super) async fn accepts(&self) -> bool {
        matches!(timeout(PROBE, TcpStream::connect(self.address)).await, Ok(Ok(_)))
    }
}
