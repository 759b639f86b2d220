//! Connection pool to the workload. Idle connections are kept for 2 s only: common servers close theirs after five
//! seconds.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use crds::usage::USAGE_PATH;
use http1::{Connection, connect};
use serde::de::IgnoredAny;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{config, local_response::OPENMETRICS_EOF};

/// Longest time for which an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a connection that only probes whether the port is open, and longest readiness probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for the workload's response at `/readyz`; the kubelet gives a probe one second in all.
const READINESS_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest head of that response, in bytes.
const MAX_PROBE_HEAD: usize = 8 << 10;
/// Most bytes of the workload's metrics.
const MAX_METRICS: u64 = 1024 * 1024;
/// Most bytes of the workload's report of the models that it used.
const MAX_USAGE: u64 = 4 * 1024 * 1024;
/// Fields of such a report, which distinguish it from other JSON: some images answer any path with that.
const USAGE_FIELDS: [&str; 3] = ["instance", "revision", "cells"];
/// Most idle connections.
const MAX_IDLE: usize = 256;

/// Workload as the upstream of the proxy.
#[derive(Debug)]
pub(super) struct Upstream {
    address: SocketAddr,
    idle: Mutex<IdleConnections>,
    /// Set once the process that accepts connections has responded that it can serve.
    can_serve: AtomicBool,
}

/// Readiness of the workload for the sidecar's own probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkloadReadiness {
    /// The workload accepts connections.
    Ready,
    /// The workload accepts no connections.
    Closed,
    /// The workload reports that it can never serve, so waiting is useless.
    Never,
}

/// Progress of the workload's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartupState {
    /// The workload accepts no connections.
    Closed,
    /// The workload accepts connections, and does not report that it is ready.
    NotYet,
    /// The workload is ready.
    Ready,
}

#[derive(Debug, Default)]
struct IdleConnections {
    /// Idle connections with the time of their last use, in ascending order.
    connections: Vec<(Connection<TcpStream>, Instant)>,
    /// Set while a task closes connections that were idle for too long.
    reaper_runs: bool,
}

impl Upstream {
    /// Creates an empty pool.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::default(), can_serve: AtomicBool::new(false) }
    }

    /// Takes an idle connection that looks alive from the pool.
    pub(super) fn reuse(&self, now: Instant) -> Option<Connection<TcpStream>> {
        let mut idle = self.idle();
        while let Some((side, since)) = idle.connections.pop() {
            if now.saturating_duration_since(since) >= IDLE_TIMEOUT {
                // The other connections have been idle for longer.
                idle.connections.clear();
                return None;
            }
            if side.is_silent() {
                return Some(side);
            }
        }
        None
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// The workload does not accept the connection in time.
    pub(super) async fn connect(&self) -> io::Result<Connection<TcpStream>> {
        connect(self.address, CONNECT_TIMEOUT).await
    }

    /// Returns a connection to the pool.
    pub(super) fn keep(self: &Arc<Self>, side: Connection<TcpStream>, now: Instant) {
        let mut idle = self.idle();
        if idle.connections.len() < MAX_IDLE {
            idle.connections.push((side, now));
        }
        if !std::mem::replace(&mut idle.reaper_runs, true) {
            let upstream = self.clone();
            tokio::spawn(async move { upstream.reap_idle().await });
        }
    }

    /// Closes connections that were idle for too long, until the pool is empty.
    async fn reap_idle(&self) {
        loop {
            sleep(IDLE_TIMEOUT).await;
            let mut idle = self.idle();
            let now = Instant::now();
            idle.connections.retain(|(_, since)| now.saturating_duration_since(*since) < IDLE_TIMEOUT);
            if idle.connections.is_empty() {
                idle.reaper_runs = false;
                return;
            }
        }
    }

    /// Closes every idle connection.
    pub(super) fn close_idle(&self) {
        self.idle().connections.clear();
    }

    fn idle(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Probes the readiness of the workload: it accepts connections, and does not send `x-recif-ready: never` at
    /// `/readyz`, as Récif's runner does when its configuration can never serve. `/readyz` is requested until it has
    /// once responded without that field; other images may send anything there, or nothing.
    pub(super) async fn readiness(&self) -> WorkloadReadiness {
        let Ok(Ok(mut io)) = timeout(PROBE_TIMEOUT, TcpStream::connect(self.address)).await else {
            self.can_serve.store(false, Relaxed);
            return WorkloadReadiness::Closed;
        };
        if self.can_serve.load(Relaxed) {
            return WorkloadReadiness::Ready;
        }
        match timeout(READINESS_TIMEOUT, get(&mut io, "/readyz")).await {
            Ok(Ok(head)) if says_never(&head) => return WorkloadReadiness::Never,
            Ok(Ok(head)) if head.starts_with(b"HTTP/") => self.can_serve.store(true, Relaxed),
            _ => {}
        }
        WorkloadReadiness::Ready
    }

    /// Probes the progress of the start as the kubelet would, within the time that the kubelet allows.
    pub(super) async fn started(&self, readiness: &config::ReadinessProbe) -> StartupState {
        let asked = async {
            let Ok(mut io) = TcpStream::connect(self.address).await else { return StartupState::Closed };
            let config::ReadinessProbe::Http(path) = readiness else { return StartupState::Ready };
            match get(&mut io, path).await {
                Ok(head) if is_success(&head) && !says_never(&head) => StartupState::Ready,
                _ => StartupState::NotYet,
            }
        };
        timeout(PROBE_TIMEOUT, asked).await.unwrap_or(StartupState::NotYet)
    }

    /// Returns the workload's own metrics, if it responds with a complete OpenMetrics exposition.
    pub(super) async fn metrics(&self) -> Option<String> {
        let read = async {
            let mut io = TcpStream::connect(self.address).await?;
            let accept = "Accept: application/openmetrics-text; version=1.0.0";
            let request = format!("GET /metrics HTTP/1.0\r\nHost: localhost\r\n{accept}\r\n\r\n");
            io.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            io.take(MAX_METRICS).read_to_end(&mut answer).await?;
            Ok::<_, io::Error>(answer)
        };
        let answer = String::from_utf8(timeout(PROBE_TIMEOUT, read).await.ok()?.ok()?).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let head = head.to_ascii_lowercase();
        let is_ours =
            head.split(' ').nth(1) == Some("200") && head.contains("\ncontent-type: application/openmetrics-text");
        (is_ours && body.ends_with(OPENMETRICS_EOF)).then(|| body.to_owned())
    }

    /// Returns the workload's report of the models that it used; `query` says what is known of it. `None`: the workload is no Récif runner.
    ///
    /// # Errors
    /// The workload does not respond, as one that is starting, or has not sent its whole report in time.
    pub(super) async fn usage(&self, query: &str) -> io::Result<Option<String>> {
        let mut response = Vec::new();
        let read = async {
            let mut io = TcpStream::connect(self.address).await?;
            let request = format!("GET {USAGE_PATH}?{query} HTTP/1.0\r\nHost: localhost\r\n\r\n");
            io.write_all(request.as_bytes()).await?;
            io.take(MAX_USAGE).read_to_end(&mut response).await
        };
        let read = timeout(PROBE_TIMEOUT, read).await;
        match read {
            Ok(received) => received.map(drop)?,
            // Some images respond to any path, and leave the connection open.
            Err(_) if is_other_response(&response) => return Ok(None),
            Err(elapsed) => return Err(elapsed.into()),
        }
        Ok(usage_report(response))
    }

    /// Reports whether the workload accepts connections.
    pub(super) async fn accepts(&self) -> bool {
        matches!(timeout(PROBE_TIMEOUT, TcpStream::connect(self.address)).await, Ok(Ok(_)))
    }
}

/// Reports whether the head of a response is whole, and not that of a report.
fn is_other_response(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response);
    text.split_once("\r\n\r\n").is_some_and(|(head, _)| !may_be_report(head))
}

/// Reports whether a response with this head may be the report of a Récif runner.
fn may_be_report(head: &str) -> bool {
    let head = head.to_ascii_lowercase();
    head.split(' ').nth(1) == Some("200") && head.contains("\ncontent-type: application/json")
}

/// Returns the body of a response if it is the report of a Récif runner.
fn usage_report(response: Vec<u8>) -> Option<String> {
    let response = String::from_utf8(response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    // A report that was cut off is no JSON.
    let report = serde_json::from_str::<HashMap<&str, IgnoredAny>>(body).ok().filter(|_| may_be_report(head))?;
    USAGE_FIELDS.iter().all(|field| report.contains_key(field)).then(|| body.to_owned())
}

/// Sends a GET of this path, and returns the response head as far as it arrives.
async fn get(io: &mut TcpStream, path: &str) -> io::Result<Vec<u8>> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    io.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n")
        && head.len() < MAX_PROBE_HEAD
        && io.read_buf(&mut head).await? > 0
    {}
    Ok(head)
}

/// Reports whether a complete head has a 2xx status. Redirects are left to the kubelet, which follows them.
fn is_success(head: &[u8]) -> bool {
    let status = head.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(1..4));
    status.is_some_and(|status| status[0] == b' ' && status[1] == b'2') && head.windows(4).any(|end| end == b"\r\n\r\n")
}

/// Reports whether a head has the field `x-recif-ready: never`.
fn says_never(head: &[u8]) -> bool {
    let end = head.windows(4).position(|end| end == b"\r\n\r\n").unwrap_or(head.len());
    let lines = head[..end].split(|byte| *byte == b'\n');
    let mut fields = lines.filter_map(|line| line.split_at_checked(line.iter().position(|byte| *byte == b':')?));
    fields.any(|(name, value)| name.eq_ignore_ascii_case(b"x-recif-ready") && value[1..].trim_ascii() == b"never")
}
