//! Connections to the workload. Idle ones are kept for a moment: common servers close theirs after five seconds.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::http1::Side;

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
    idle: Mutex<Vec<(Side<TcpStream>, Instant)>>,
}

impl Upstream {
    /// Nothing is opened yet.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// An idle connection that looks alive.
    pub(super) fn reuse(&self) -> Option<Side<TcpStream>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((side, since)) = idle.pop() {
            if since.elapsed() >= IDLE {
                // The others have been idle for longer.
                idle.clear();
                return None;
            }
            // Data that nobody asked for, or the end: neither is to be taken for the next answer.
            let silent = side.io.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            if silent {
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
        let io = timeout(CONNECT, TcpStream::connect(self.address)).await??;
        // Tokens are small writes that must not wait for each other.
        io.set_nodelay(true)?;
        Ok(Side::new(io))
    }

    /// Keeps a connection for another request.
    pub(super) fn keep(&self, side: Side<TcpStream>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < POOL {
            idle.push((side, Instant::now()));
        }
    }

    /// Closes every idle connection.
    pub(super) fn forget(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether somebody accepts connections.
    pub(super) async fn accepts(&self) -> bool {
        matches!(timeout(PROBE, TcpStream::connect(self.address)).await, Ok(Ok(_)))
    }
}
