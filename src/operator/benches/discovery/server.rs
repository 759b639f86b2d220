//! MCP server of the newer era with 100 tools.

use std::io::{self, Write as _};

use axum::{Router, body::Bytes, http::header::CONTENT_TYPE, response::IntoResponse, routing::post};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Number of tools.
pub(crate) const TOOLS: usize = 100;

/// Prints its address on one line and serves until it is killed.
pub(crate) fn serve() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        writeln!(io::stdout(), "http://{}/mcp", listener.local_addr()?)?;
        axum::serve(listener, Router::new().route("/mcp", post(respond))).await
    })
}

async fn respond(body: Bytes) -> impl IntoResponse {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let result = match request["method"].as_str() {
        Some("server/discover") => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "ttlMs": 0, "cacheScope": "private",
        }),
        _ => json!({
            "resultType": "complete", "tools": (0..TOOLS).map(tool).collect::<Vec<_>>(), "ttlMs": 0,
            "cacheScope": "private",
        }),
    };
    let text = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
    ([(CONTENT_TYPE, "application/json")], text)
}

/// Returns a tool that is as large as those of the reference servers.
fn tool(number: usize) -> Value {
    let property = |about: &str| json!({"type": "string", "description": format!("{about} of the thing to look at")});
    json!({
        "name": format!("tool-{number}"),
        "description": "Looks at a thing and tells what is known of it, in one or several sentences.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": property("Name"), "place": property("Place"), "depth": {"type": "integer", "minimum": 0}},
            "required": ["name"],
        },
    })
}
