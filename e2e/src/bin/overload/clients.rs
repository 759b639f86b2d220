//! Open-loop load generator: clients arrive at a fixed rate, independent of earlier responses, and give up after a second.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{interval, timeout},
};

use crate::http::get;

/// Timeout of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// First part of the run, in which useful responses are not counted.
const WARM_UP: Duration = Duration::from_secs(5);
/// Interval at which clients start, several at a time.
const TICK: Duration = Duration::from_millis(5);

/// Outcomes of all requests.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct OverloadTotals {
    pub(crate) sent: u64,
    /// Responses in time, after the warm-up.
    pub(crate) useful: u64,
    /// Responses with status 503.
    pub(crate) refused: u64,
    pub(crate) gave_up: u64,
    /// All other outcomes.
    pub(crate) failed: u64,
    /// Length of the counted part of the run.
    pub(crate) counted: Duration,
}

enum ClientOutcome {
    Useful,
    Refused,
    GaveUp,
    Failed,
}

/// Sends requests with this service time at this rate until the end of the run.
pub(crate) async fn run(gateway: SocketAddr, service: Duration, per_second: f64, whole: Duration) -> OverloadTotals {
    let path: &'static str =
        Box::leak(format!("/v1/agents/default/bench/sleep?ms={}", service.as_millis()).into_boxed_str());
    let (started, mut ticks) = (Instant::now(), interval(TICK));
    let mut outcome = OverloadTotals { counted: whole - WARM_UP, ..OverloadTotals::default() };
    let mut clients = JoinSet::new();
    let count = |outcome: &mut OverloadTotals, end: ClientOutcome| {
        let elapsed = started.elapsed();
        let counts = elapsed >= WARM_UP && elapsed <= whole;
        match end {
            ClientOutcome::Useful => outcome.useful += u64::from(counts),
            ClientOutcome::Refused => outcome.refused += 1,
            ClientOutcome::GaveUp => outcome.gave_up += 1,
            ClientOutcome::Failed => outcome.failed += 1,
        }
    };
    while started.elapsed() < whole {
        tokio::select! {
            _ = ticks.tick() => {
                while (outcome.sent as f64) < started.elapsed().as_secs_f64() * per_second {
                    clients.spawn(client(gateway, path, outcome.sent));
                    outcome.sent += 1;
                }
            }
            Some(Ok(end)) = clients.join_next() => count(&mut outcome, end),
        }
    }
    while let Some(Ok(end)) = clients.join_next().await {
        count(&mut outcome, end);
    }
    outcome
}

async fn client(gateway: SocketAddr, path: &'static str, number: u64) -> ClientOutcome {
    let Ok(mut io) = connect(gateway, number).await else { return ClientOutcome::Failed };
    match timeout(CLIENT_TIMEOUT, get(&mut io, path)).await {
        Ok(Ok((200, _))) => ClientOutcome::Useful,
        Ok(Ok((503, _))) => ClientOutcome::Refused,
        Ok(_) => ClientOutcome::Failed,
        Err(_) => {
            // Every other client closes with a reset (RST) instead of a FIN.
            if number.is_multiple_of(2) {
                let _ = io.set_zero_linger();
            }
            ClientOutcome::GaveUp
        }
    }
}

/// Connects from one of many source addresses, so that no address runs out of ports.
async fn connect(gateway: SocketAddr, number: u64) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let last = u8::try_from(number % 250).unwrap_or_default() + 2;
    socket.bind(([127, 0, 0, last], 0).into())?;
    socket.connect(gateway).await
}
