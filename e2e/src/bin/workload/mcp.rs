//! Implements an MCP server of the older protocol era, without sessions, whose behaviour the query selects.
//!
//! `?manner=`: `hang`, `drip`, `garbage`, `huge` (without end), `redirect` (to another host), `many` (10 000 tools),
//! `refuse` (the host). Without it: the tools that `/tools?names=a,b` set, each described by `&words=`, in which `%E2%80%8B`
//! is a zero-width space, for every client with the token that `/token?is=` set.

use std::{
    io::{self, Write as _},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use e2e::http1::{Io, ReceivedRequest, disconnected, respond};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, time::sleep};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// State of the server: its tools and the token that it requires.
#[derive(Debug, Default)]
pub(crate) struct TestMcpServer(Mutex<FakeMcpConfig>);

#[derive(Debug, Default, Clone)]
struct FakeMcpConfig {
    names: Vec<String>,
    words: String,
    token: String,
}

impl TestMcpServer {
    /// Replaces the tools of the server.
    pub(crate) fn set_tools(&self, request: &ReceivedRequest) {
        let names = request.query("names").split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let words = request.query("words").replace("%E2%80%8B", "\u{200b}");
        self.change(|state| (state.names, state.words) = (names, words));
    }

    /// Replaces the token that the server requires.
    pub(crate) fn set_token(&self, request: &ReceivedRequest) {
        let token = request.query("is").to_owned();
        self.change(|state| state.token = token);
    }

    fn change(&self, change: impl FnOnce(&mut FakeMcpConfig)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Responds to a request to `/mcp`; false: the connection cannot be used again.
    pub(crate) async fn handle(&self, io: &mut Io, request: &ReceivedRequest, close: bool) -> io::Result<bool> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match request.query("manner") {
            "hang" => {
                disconnected(io).await;
                return Ok(false);
            }
            "drip" | "huge" => {
                write_endlessly(io, request.query("manner") == "huge").await?;
                return Ok(false);
            }
            "garbage" => respond(io, "200 OK", JSON, "{\"jsonrpc\": nonsense", close).await?,
            "refuse" => respond(io, "403 Forbidden", TEXT, "Host header is not allowed", close).await?,
            "redirect" => {
                let head = "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://elsewhere.example/mcp\r\nContent-Length: 0\r\n\r\n";
                io.write_all(head.as_bytes()).await?;
            }
            manner => {
                let brought = request.header("authorization").unwrap_or_default();
                if !state.token.is_empty() && brought != format!("Bearer {}", state.token) {
                    respond(io, "401 Unauthorized", TEXT, "who are you?", close).await?;
                    return Ok(true);
                }
                let names = match manner {
                    "many" => (0..10_000).map(|n| format!("tool-{n}")).collect(),
                    _ => state.names,
                };
                respond_to_message(io, request, &names, &state.words, close).await?;
            }
        }
        Ok(true)
    }
}

/// Responds to a message as a well-behaved server does.
async fn respond_to_message(
    io: &mut Io,
    request: &ReceivedRequest,
    names: &[String],
    words: &str,
    close: bool,
) -> io::Result<()> {
    let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    match reply(&asked, names, words, request.header("x-tenant")) {
        Some(answer) => respond(io, "200 OK", JSON, &answer.to_string(), close).await,
        None => respond(io, "202 Accepted", TEXT, "", close).await,
    }
}

/// Returns the response to a message with this `X-Tenant`; `None` for a notification.
fn reply(asked: &Value, names: &[String], words: &str, tenant: Option<&str>) -> Option<Value> {
    let schema = json!({"type": "object", "properties": {"message": {"type": "string"}}});
    let result = match asked["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "workload", "version": "1"},
        }),
        Some("tools/list") => {
            let tool = |name: &String| json!({"name": name, "description": words, "inputSchema": schema});
            json!({"tools": names.iter().map(tool).collect::<Vec<_>>()})
        }
        Some("tools/call") => {
            let (name, message) = (&asked["params"]["name"], &asked["params"]["arguments"]["message"]);
            let to = tenant.map(|tenant| format!(" to {tenant}")).unwrap_or_default();
            json!({"content": [{"type": "text", "text": format!("{} says {}{to}", text(name), text(message))}]})
        }
        _ if asked["id"].is_null() => return None,
        _ => {
            let error = json!({"code": -32601, "message": "Method not found"});
            return Some(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
}

/// Serves over standard input and output, with the tools of these names, until the input ends.
pub(crate) fn serve_stdio(names: &[String]) -> io::Result<()> {
    for line in io::stdin().lines() {
        let asked = serde_json::from_str(&line?).unwrap_or_default();
        if let Some(answer) = reply(&asked, names, "over pipes", None) {
            writeln!(io::stdout(), "{answer}")?;
        }
    }
    Ok(())
}

/// Writes a response that never ends.
async fn write_endlessly(io: &mut Io, fast: bool) -> io::Result<()> {
    io.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
    let (size, pause) = if fast { (1 << 16, Duration::ZERO) } else { (1, Duration::from_millis(100)) };
    let chunk = [format!("{size:x}\r\n").into_bytes(), vec![b' '; size], b"\r\n".to_vec()].concat();
    loop {
        io.write_all(&chunk).await?;
        sleep(pause).await;
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
