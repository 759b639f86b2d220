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
const PATIENCE: Duration = Duration::from_secs(1);
/// What the first seconds bring does not count.
const WARM_UP: Duration = Duration::from_secs(5);
/// How often clients start, several at a time.
const TICK: Duration = Duration::from_millis(5);

/// What became of all requests.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Outcome {
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

enum End {
    Useful,
    Refused,
    GaveUp,
    Failed,
}

/// Sends requests that take `service` each.
pub(crate) async fn run(gateway: SocketAddr, service: Duration, per_second: f64, whole: Duration) -> Outcome {
    let path: &'static str =
        Box::leak(format!("/v1/agents/default/bench/sleep?ms={}", service.as_millis()).into_boxed_str());
    let (started, mut ticks) = (Instant::now(), interval(TICK));
    let mut outcome = Outcome { counted: whole - WARM_UP, ..Outcome::default() };
    let mut clients = JoinSet::new();
    let count = |outcome: &mut Outcome, end: End| {
        let elapsed = started.elapsed();
        let counts = elapsed >= WARM_UP && elapsed <= whole;
        match end {
            End::Useful => outcome.useful += u64::from(counts),
            End::Refused => outcome.refused += 1,
            End::GaveUp => outcome.gave_up += 1,
            End::Failed => outcome.failed += 1,
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

async fn client(gateway: SocketAddr, path: &'static str, number: u64) -> End {
    let Ok(mut io) = connect(gateway, number).await else { return End::Failed };
    match timeout(PATIENCE, get(&mut io, path)).await {
        Ok(Ok((200, _))) => End::Useful,
        Ok(Ok((503, _))) => End::Refused,
        Ok(_) => End::Failed,
        Err(_) => {
            // Every other one leaves without a farewell.
            if number.is_multiple_of(2) {
                let _ = io.set_zero_linger();
            }
            End::GaveUp
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
