//! Clients that come at a fixed rate, whatever becomes of those before them, and leave after a second.

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

/// When a client gives up.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// What the first seconds bring does not count.
const WARM_UP: Duration = Duration::from_secs(5);
/// How often clients start, several at a time.
const TICK: Duration = Duration::from_millis(5);

/// What became of all requests.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct OverloadTotals {
    pub(crate) sent: u64,
    /// Answered in time, after the warm-up.
    pub(crate) useful: u64,
    /// 503.
    pub(crate) refused: u64,
    pub(crate) gave_up: u64,
    /// Anything else.
    pub(crate) failed: u64,
    /// How long was counted.
    pub(crate) counted: Duration,
}

enum ClientOutcome {
    Useful,
    Refused,
    GaveUp,
    Failed,
}

/// Sends requests that take `service` each.
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
            // Every other one leaves without a farewell.
            if number.is_multiple_of(2) {
                let _ = io.set_zero_linger();
            }
            ClientOutcome::GaveUp
        }
    }
}

/// From one of many addresses, so that none runs out of ports.
async fn connect(gateway: SocketAddr, number: u64) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let last = u8::try_from(number % 250).unwrap_or_default() + 2;
    socket.bind(([127, 0, 0, last], 0).into())?;
    socket.connect(gateway).await
}
