//! Tests the life cycle of `recif-proxy mcp-bridge`: probes of the kubelet, signals, and misbehaving clients.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test program, which needs a part of what is shared"
)]

mod bridge;

use std::{process::Stdio, time::Duration};

use bridge::{Bridge, EventStream, SOON, request, wait_until_gone};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    process::Command,
    time::{sleep, timeout},
};

#[tokio::test]
async fn arguments_that_cannot_be_used_end_it_at_once() {
    for (arguments, expected) in [
        (&["--", "no-such-program"][..], "no-such-program"),
        (&["--path", "mcp", "--", "sh"], "--path"),
        (&["--max-sessions", "0", "--", "sh"], "--max-sessions"),
        (&["--idle", "soon", "--", "sh"], "--idle"),
        (&["--port", "0"], "COMMAND"),
    ] {
        let mut bridge = Command::new(env!("CARGO_BIN_EXE_recif-proxy"));
        let output = timeout(SOON, bridge.arg("mcp-bridge").args(arguments).output()).await.unwrap().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn it_is_there_before_any_child_is() {
    let bridge = Bridge::of(&["--path", "/x"], &["false"]).await;
    assert_eq!((bridge.probe("/livez").await, bridge.probe("/readyz").await), (200, 200));
    assert_eq!((bridge.probe("/mcp").await, bridge.probe("/").await, bridge.probe("/x").await), (404, 404, 405));
}

#[tokio::test]
async fn on_a_developers_machine_no_web_page_is_served() {
    let bridge = Bridge::with(&[("RECIF_LOCAL", "true")], &[]).await;
    drop(bridge.session().await);
    let open = request(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
    for (name, value) in [("host", "evil.example"), ("origin", "null"), ("sec-fetch-site", "same-site")] {
        for path in ["/mcp", "/livez", "/readyz"] {
            let sent = bridge.client.post(format!("{}{path}", bridge.url)).json(&open);
            let answer = sent.header("accept", "application/json").header(name, value).send().await.unwrap();
            assert_eq!(answer.status(), 403, "{path} {name}: {value}");
        }
    }
    assert_eq!((bridge.probe("/livez").await, bridge.probe("/readyz").await), (200, 200));
}

#[tokio::test]
async fn variables_stand_in_for_the_command_line() {
    let bridge =
        Bridge::with(&[("RECIF_MAX_SESSIONS", "1"), ("RECIF_ALLOWED_ORIGINS", "https://a.example")], &[]).await;
    let _only = bridge.session().await;
    let open = request(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
    let full = bridge.post(&open).header("origin", "https://a.example").send().await.unwrap();
    assert_eq!(full.status(), 503);
    assert!(full.text().await.unwrap().contains("RECIF_MAX_SESSIONS"));
    let elsewhere = bridge.post(&open).header("origin", "https://b.example").send().await.unwrap();
    assert_eq!(elsewhere.status(), 403);
    assert!(elsewhere.text().await.unwrap().contains("RECIF_ALLOWED_ORIGINS"));
}

#[tokio::test]
async fn a_session_is_its_users_alone_and_each_user_has_a_share_of_them() {
    let bridge = Bridge::with(&[("RECIF_MAX_SESSIONS", "2")], &[]).await;
    let open = async |user: &str| {
        let open = request(
            0,
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        );
        let response = bridge.post(&open).header("x-recif-user", user).send().await.unwrap();
        let id = response.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        (response.status().as_u16(), id.unwrap_or_default())
    };
    let ping = async |user: &str, id: &str| {
        let asked = bridge.post(&request(1, "ping", json!({}))).header("mcp-session-id", id);
        asked.header("x-recif-user", user).send().await.unwrap().status().as_u16()
    };
    let (_, first) = open("alice").await;
    let (_, second) = open("alice").await;
    assert_eq!((ping("alice", &first).await, ping("mallory", &first).await), (200, 404));
    assert_eq!(open("alice").await.0, 503, "alice has used up the share");
    let (status, third) = open("bob").await;
    assert_eq!(status, 200, "an idle session of alice makes room");
    assert_eq!([ping("alice", &first).await, ping("alice", &second).await, ping("bob", &third).await], [200, 404, 200]);
    assert_eq!(open("carol").await.0, 503, "no user has more than a share");
    let stolen = bridge.request(Method::DELETE).header("mcp-session-id", &*third).header("x-recif-user", "mallory");
    assert_eq!(stolen.send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_bad_request_is_refused_with_what_is_wrong() {
    let bridge = Bridge::start(&["--allowed-origins", "https://a.example,https://b.example"]).await;
    let ping = request(1, "ping", json!({}));
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    let text =
        |text: &str| bridge.request(Method::POST).header("content-type", "application/json").body(text.to_owned());
    for (asked, wanted) in [
        (bridge.post(&ping), 400),
        (bridge.post(&ping).header("mcp-session-id", "x"), 404),
        (bridge.post(&ping).header("mcp-protocol-version", "2025-01-01"), 400),
        (bridge.post(&ping).header("mcp-session-id", "x").header("mcp-session-id", "y"), 400),
        (bridge.post(&ping).header("origin", "https://evil.example"), 403),
        (bridge.post(&ping).header("origin", "null"), 403),
        (bridge.post(&ping).header("origin", "https://b.example").header("mcp-session-id", "x"), 404),
        (text("{"), 400),
        (text("[]"), 400),
        (text("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"a\"}"), 400),
        (text("\u{0}"), 400),
        (bridge.request(Method::POST).body("{}"), 415),
        (text("{}").header("accept", "text/html"), 400),
        (bridge.client.post(format!("{}/mcp", bridge.url)).json(&ping).header("accept", "text/html"), 406),
        (bridge.request(Method::GET), 405),
        (bridge.request(Method::DELETE), 405),
        (bridge.request(Method::GET).header("mcp-session-id", "x"), 404),
        (bridge.request(Method::DELETE).header("mcp-session-id", "x"), 404),
        (bridge.request(Method::PUT), 405),
    ] {
        let named = format!("{asked:?}");
        assert_eq!(status(asked).await, wanted, "{named}");
    }
    let large = request(1, "ping", json!({"text": "x".repeat(4 << 20)}));
    assert_eq!(status(bridge.post(&large)).await, 413);
    let chunks = futures::stream::iter((0..5).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 20])));
    let chunked = bridge.request(Method::POST).header("content-type", "application/json");
    assert_eq!(status(chunked.body(reqwest::Body::wrap_stream(chunks))).await, 413);
    let batch: Value =
        text("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}]").send().await.unwrap().json().await.unwrap();
    assert!(batch["error"]["message"].as_str().unwrap().contains("batches"), "{batch}");
}

#[tokio::test]
async fn there_are_no_more_connections_than_allowed_and_probes_are_answered_nevertheless() {
    let bridge = Bridge::start(&[]).await;
    let address = bridge.url.strip_prefix("http://").unwrap();
    let mut held = Vec::new();
    for _ in 0..1024 {
        held.push(TcpStream::connect(address).await.unwrap());
    }
    let refused = bridge.post(&request(1, "ping", json!({}))).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(bridge.probe("/livez").await, 200);
    drop(held);
    bridge.wait_for_status("/mcp", 405).await;
}

#[tokio::test]
async fn what_a_child_logs_is_in_the_log() {
    let mut bridge = Bridge::start(&[]).await;
    assert_eq!(bridge.query(1, "log", json!({"text": "the weather is fine"})).await["result"], json!({}));
    let line = bridge.wait_for_log("the weather is fine").await;
    assert_eq!(line["child"], "shared");
}

#[tokio::test]
async fn sigterm_lets_requests_finish_and_leaves_nothing_behind() {
    let mut bridge = Bridge::start(&[]).await;
    let session = bridge.session().await;
    let (own, helper) =
        (session.pid().await, session.query("helper", json!({})).await["result"]["pid"].as_u64().unwrap());
    let shared = bridge.query(1, "pid", json!({})).await["result"]["pid"].as_u64().unwrap();
    let listening = EventStream::of(session.request(Method::GET).send().await.unwrap());
    let subscribed = EventStream::of(bridge.modern(1, "subscriptions/listen", json!({})).send().await.unwrap());
    let old = session.post(request(1, "sleep", json!({"seconds": 1})));
    let new = bridge.query(2, "sleep", json!({"seconds": 1}));
    let ending = async {
        sleep(Duration::from_millis(300)).await;
        bridge.signal("-TERM").await;
        bridge.wait_for_status("/readyz", 503).await;
        let refused = bridge.modern(1, "pid", json!({})).send().await.unwrap();
        assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
        assert_eq!((listening.rest().await.len(), subscribed.rest().await.len()), (0, 1), "they end well");
    };
    let (old, new, ()) = tokio::join!(old, new, ending);
    assert_eq!(old.json::<Value>().await.unwrap()["result"], json!({}));
    assert_eq!(new["result"], json!({}));
    let status = timeout(SOON, bridge.process.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
    for pid in [own, helper, shared] {
        wait_until_gone(pid).await;
    }
}

#[tokio::test]
async fn it_can_be_copied_to_where_it_is_not() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed-proxy");
    let run = async |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + str::from_utf8(&output.stderr).unwrap())
    };
    let own = env!("CARGO_BIN_EXE_recif-proxy");
    for _ in 0..2 {
        let (status, expected) = run(own, &["install", file.to_str().unwrap()]).await;
        assert_eq!(status, Some(0), "{expected}");
    }
    assert_eq!(run(file.to_str().unwrap(), &["--version"]).await.0, Some(0));
    let (status, expected) = run(own, &["install", "/no/such/folder/x"]).await;
    assert!(status == Some(1) && expected.contains("/no/such/folder/x"), "{expected}");
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_be_started_makes_it_unready_and_says_the_cause_until_it_can() {
    use std::os::unix::fs::PermissionsExt as _;

    let program = std::env::temp_dir().join(format!("recif-bridge-life-{}", std::process::id()));
    let write = |text: &str| {
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("#!/no/such/interpreter\n");
    let bridge = Bridge::of(&[], &[program.to_str().unwrap()]).await;
    assert_eq!(bridge.probe("/readyz").await, 200, "no request has come for it");
    let open = request(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
    let cause = "the MCP server cannot be started: No such file or directory";
    let refused = bridge.post(&open).send().await.unwrap();
    assert_eq!(refused.status(), 502);
    let text = refused.text().await.unwrap();
    assert!(text.contains(cause), "{text}");
    bridge.wait_for_status("/readyz", 503).await;
    let refused = bridge.modern(1, "tools/list", json!({})).send().await.unwrap();
    assert_eq!(refused.status(), 502);
    let text = refused.text().await.unwrap();
    assert!(text.contains(cause), "{text}");
    write("#!/bin/sh\nexec cat\n");
    bridge.wait_for_status("/readyz", 200).await;
    std::fs::remove_file(&program).unwrap();
}
