//! Routes each path to its response.

use std::{io, time::Duration};

use e2e::http1::{Io, ReceivedRequest, begin_events, disconnected, end_events, event, named_event, respond};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    time::{Instant, interval, sleep, sleep_until},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};

use crate::state::TestWorkloadState;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// Responds to a request; returns the connection if another request may follow on it.
pub(crate) async fn handle(mut io: Io, request: &ReceivedRequest, state: &TestWorkloadState) -> io::Result<Option<Io>> {
    let close = state.is_stopping() || request.is_last();
    let io_ = &mut io;
    // Requests that query or control the workload are not counted as work.
    match request.path() {
        "/healthz" if state.is_healthy() => respond(io_, "200 OK", TEXT, "ok", close).await?,
        "/healthz" => respond(io_, "500 Internal Server Error", TEXT, "broken", close).await?,
        "/stats" => respond(io_, "200 OK", JSON, &state.stats(), close).await?,
        "/open" => {
            state.open_gate(request.query("gate"));
            respond(io_, "200 OK", TEXT, "open", close).await?;
        }
        "/break" => {
            state.break_down();
            respond(io_, "200 OK", TEXT, "broken", close).await?;
        }
        "/tools" => {
            state.mcp.set_tools(request);
            respond(io_, "200 OK", TEXT, "told", close).await?;
        }
        "/token" => {
            state.mcp.set_token(request);
            respond(io_, "200 OK", TEXT, "told", close).await?;
        }
        "/v1/traces" => {
            state.keep_spans(&request.body);
            respond(io_, "200 OK", JSON, "{}", close).await?;
        }
        "/spans" => respond(io_, "200 OK", JSON, &state.spans(), close).await?,
        "/bills" => respond(io_, "200 OK", JSON, &state.billing.bills(), close).await?,
        "/exit" => std::process::exit(1),
        // The sidecar asks by itself, at times that no test chooses.
        "/readyz" | "/_recif/usage" => return Ok(work(io, request, state).await?.filter(|_| !close)),
        _ => {
            let flight = state.begin();
            let again = work(io, request, state).await?;
            flight.complete();
            return Ok(again.filter(|_| !close));
        }
    }
    Ok((!close).then_some(io))
}

async fn work(mut io: Io, request: &ReceivedRequest, state: &TestWorkloadState) -> io::Result<Option<Io>> {
    let close = state.is_stopping() || request.is_last();
    let io_ = &mut io;
    match request.path() {
        "/chat" => {
            let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let message = asked["message"].as_str().unwrap_or_default();
            if let Some(gate) = message.strip_prefix("gate ") {
                begin_events(io_).await?;
                event(io_, &json!({ "token": "first " }).to_string()).await?;
                unless_gone(io_, state.await_gate(gate)).await?;
                event(io_, &json!({ "token": "last" }).to_string()).await?;
                named_event(io_, "done", "{}").await?;
                end_events(io_).await?;
                return Ok(Some(io));
            }
            let reply = format!("echo: {message}");
            respond(io_, "200 OK", JSON, &json!({ "reply": reply }).to_string(), close).await?;
        }
        "/usage" => {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-recif-usage: in=7, out=5, model=\"stub/echo\"\r\n\r\n";
            io_.write_all(format!("{head}ok").as_bytes()).await?;
        }
        path if path.starts_with("/seen") => {
            let seen = json!({ "line": request.line, "headers": request.headers }).to_string();
            respond(io_, "200 OK", JSON, &seen, close).await?;
        }
        // A provider of models that is down.
        path if path.starts_with("/unavailable/") => {
            respond(io_, "503 Service Unavailable", JSON, r#"{"error": {"message": "down"}}"#, close).await?;
        }
        // A deployment of a model at Azure, which says by what it was called.
        "/openai/deployments/blue/chat/completions" => {
            let key = request.header("api-key").unwrap_or_default();
            let text = format!("blue {} {key}", request.query("api-version"));
            let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": "stop" });
            begin_events(io_).await?;
            event(io_, &json!({ "choices": [], "prompt_filter_results": [] }).to_string()).await?;
            event(io_, &json!({ "choices": [choice] }).to_string()).await?;
            event(io_, "[DONE]").await?;
            end_events(io_).await?;
        }
        "/sleep" => {
            unless_gone(io_, sleep(duration(request))).await?;
            respond(io_, "200 OK", TEXT, "slept", close).await?;
        }
        "/events" => {
            begin_events(io_).await?;
            event(io_, "first").await?;
            unless_gone(io_, state.await_gate(request.query("gate"))).await?;
            event(io_, "second").await?;
            end_events(io_).await?;
        }
        "/billing/chat/completions" => {
            return Ok(state.billing.answer(io_, request, close).await?.then_some(io));
        }
        "/mcp" => return Ok(state.mcp.handle(io_, request, close).await?.then_some(io)),
        "/hold" => hold(io_, duration(request)).await?,
        "/abort" => {
            begin_events(io_).await?;
            io_.write_all(b"10\r\nhalf a").await?;
            // The data must arrive before the reset does.
            sleep(Duration::from_millis(100)).await;
            io.into_inner().set_zero_linger()?;
            return Ok(None);
        }
        "/ws" => {
            echo(io, request).await?;
            return Ok(None);
        }
        _ => respond(io_, "404 Not Found", TEXT, "there is nothing here", close).await?,
    }
    Ok(Some(io))
}

fn duration(request: &ReceivedRequest) -> Duration {
    Duration::from_millis(request.query("ms").parse().unwrap_or_default())
}

/// Runs the work; returns an error if the client disconnects first.
async fn unless_gone<T>(io: &mut Io, work: impl Future<Output = T>) -> io::Result<T> {
    tokio::select! {
        done = work => Ok(done),
        () = disconnected(io) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

async fn hold(io: &mut Io, how_long: Duration) -> io::Result<()> {
    begin_events(io).await?;
    let until = Instant::now() + how_long;
    let mut ticks = interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            () = sleep_until(until) => break,
            _ = ticks.tick() => event(io, "still here").await?,
            () = disconnected(io) => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
    event(io, "end").await?;
    end_events(io).await
}

async fn echo(mut io: Io, request: &ReceivedRequest) -> io::Result<()> {
    let Some(key) = request.header("sec-websocket-key") else {
        return respond(&mut io, "426 Upgrade Required", TEXT, "this is a WebSocket", true).await;
    };
    let accept = derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    io.write_all(head.as_bytes()).await?;
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    // The library answers pings and the close frame itself, as long as the socket is read.
    while let Some(Ok(message)) = socket.next().await {
        if message.is_text() || message.is_binary() {
            socket.send(message).await.map_err(io::Error::other)?;
        }
    }
    Ok(())
}
