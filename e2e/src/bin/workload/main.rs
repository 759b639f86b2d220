//! Test workload: each path responds in a way that a test needs, and the workload records the requests that it receives.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 until `/break` was called, then 500 |
//! | `/chat` | `{"reply": "echo: <message>"}`; for the message `gate x` a stream of tokens, the last one after `/open?gate=x` |
//! | `/events?gate=x` | an event, and a second one after `/open?gate=x` was called |
//! | `/hold?ms=n` | an event at once and then every 200 ms; after n ms the last event, `end` |
//! | `/sleep?ms=n` | 200 after n ms |
//! | `/ws` | a WebSocket that echoes messages |
//! | `/abort` | half a chunk, then a reset (RST) |
//! | `/seen…` | the request line and headers, as JSON |
//! | `/stats` | counters as JSON: requests in flight, highest number in flight, begun, completed, left |
//! | `/mcp?manner=…` | as an MCP server, well-behaved or not; `/tools?names=a,b&words=w` and `/token?is=t` configure it |
//! | `/v1/traces` | 200, as a collector of traces; `/spans` returns the bodies, which have to be JSON |
//! | `/billing/chat/completions` | as a provider of models, which does what the message says; `/bills` returns what it billed |
//! | `/usage` | `ok`, and in `x-recif-usage` 7 tokens of input and 5 of output |
//! | `/exit` | none: the process ends |
//!
//! With the arguments `mcp a b` it is an MCP server over its standard input and output with the tools `a` and `b`.
//!
//! Environment: `CORAIL_PORT` (8000), `WORKLOAD_LISTEN_AFTER_MS` (0), and `WORKLOAD_ON_TERM`: `exit` ends at once on
//! SIGTERM; otherwise the requests in flight are finished first.

mod billing;
mod mcp;
mod paths;
mod state;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use e2e::http1::ReceivedRequest;
use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

use crate::state::TestWorkloadState;

/// Longest wait for the requests in flight at the end.
const FINISH: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("mcp") {
        return Ok(mcp::serve_stdio(&words.collect::<Vec<_>>())?);
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let port = number("CORAIL_PORT", 8000)?;
    let finishes = std::env::var("WORKLOAD_ON_TERM").as_deref() != Ok("exit");
    let state = Arc::new(TestWorkloadState::default());
    let serving = async {
        sleep(Duration::from_millis(number("WORKLOAD_LISTEN_AFTER_MS", 0)?)).await;
        let listener = TcpListener::bind(("0.0.0.0", u16::try_from(port)?)).await?;
        loop {
            let (io, _) = listener.accept().await?;
            tokio::spawn(connection(io, state.clone()));
        }
    };
    tokio::select! {
        ended = serving => return ended,
        _ = terminate.recv() => {}
    }
    if finishes {
        state.stop();
        timeout(FINISH, state.idle()).await.context("requests did not end")?;
    }
    Ok(())
}

fn number(variable: &str, default: u64) -> Result<u64> {
    let Ok(value) = std::env::var(variable) else { return Ok(default) };
    value.parse().with_context(|| format!("{variable}={value:?} is no number"))
}

/// Serves one request after another. A client that disconnects ends its own connection only.
async fn connection(io: TcpStream, state: Arc<TestWorkloadState>) {
    let _ = io.set_nodelay(true);
    let mut io = BufReader::new(io);
    loop {
        let request = tokio::select! {
            request = ReceivedRequest::read(&mut io) => request,
            () = state.stopped() => return,
        };
        let Ok(Some(request)) = request else { return };
        match paths::handle(io, &request, &state).await {
            Ok(Some(again)) => io = again,
            Ok(None) | Err(_) => return,
        }
    }
}
