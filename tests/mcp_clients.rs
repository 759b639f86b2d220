//! Tests foreign servers and clients of MCP with all hops of a cluster between them: reference servers over pipes behind
//! bridge, sidecar and gateway, and over HTTP behind the latter two; and the official clients, in both protocol eras, at
//! each of these entry points.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test program, which needs a part of what is shared"
)]

mod bridge;
mod hops;

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};
use testing::peers;

use bridge::SOON;
use hops::Hops;
use rmcp::{
    model::{CallToolRequestParams, ClientConfig, Implementation, ProtocolVersion},
    service::{ClientLifecycleMode, serve_client_with_lifecycle},
    transport::StreamableHttpClientTransport,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    time::timeout,
};

/// Starts one of the reference servers behind all hops.
async fn hops(server: &str) -> Hops {
    let package = |name: &str| {
        let file = format!("node_modules/@modelcontextprotocol/server-{name}/dist/index.js");
        peers::folder().join(file).to_str().unwrap().to_owned()
    };
    let python = peers::folder().join("python/bin/python").to_str().unwrap().to_owned();
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let files = format!("{}/hops-{server}-{number}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(&files).unwrap();
    let memory = format!("MEMORY_FILE_PATH={files}/memory.json");
    let words: Vec<String> = match server {
        "everything" => vec!["node".into(), package(server), "stdio".into()],
        "filesystem" => vec!["node".into(), package(server), files],
        "memory" => vec!["env".into(), memory, "node".into(), package(server)],
        "time" => ["-m", "mcp_server_time", "--local-timezone", "UTC"].map(String::from).to_vec(),
        _ => ["-m", "mcp_server_fetch"].map(String::from).to_vec(),
    };
    let words = if words[0] == "-m" { [vec![python], words].concat() } else { words };
    Hops::of(&[], &words.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// Runs a script of `tests/peers` against a server, at each entry point. The script checks what it sees, and prints `done`
/// at its end.
async fn check(server: &str, script: impl Fn() -> Command) {
    at_each_entry_point(server, &hops(server).await, script).await;
}

async fn at_each_entry_point(server: &str, hops: &Hops, script: impl Fn() -> Command) {
    for (door, url) in hops.entry_points() {
        let mut script = tokio::process::Command::from(script());
        let output = script.args([server, &url]).kill_on_drop(true).output();
        let output = timeout(4 * SOON, output).await.unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out.trim_end().ends_with("done"), "{server} at the {door}\n{out}\n{err}");
    }
}

/// Runs the conformance suite of the protocol against a server and returns, by scenario, whether all of its checks passed,
/// and how many failed. The number of checks depends on whether the server responds with a document or a stream, which it
/// may choose.
async fn scenarios(url: &str) -> BTreeMap<String, (bool, String)> {
    let modules = peers::folder().join("node_modules");
    // The suite needs a later Node than the clients.
    let node = format!("node-linux-{}/bin/node", if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" });
    let mut suite = tokio::process::Command::new(modules.join(node));
    suite.arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"));
    suite.args(["server", "--suite", "all", "--url", url]).env("NO_PROXY", "*").kill_on_drop(true);
    let output = timeout(4 * SOON, suite.output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (name, passed) = match line.split_once(' ')? {
            ("✓", rest) => (rest, true),
            ("✗", rest) => (rest, false),
            _ => return None,
        };
        let (name, counts) = name.split_once(": ")?;
        Some((name.to_owned(), (passed, counts.split_once(", ")?.1.to_owned())))
    };
    let found: BTreeMap<_, _> = text.lines().filter_map(line).collect();
    assert!(found.len() >= 30, "{text}");
    found
}

/// Starts a server over HTTP, which ends when the process is dropped; also returns the port in its first line of output.
async fn started(server: Command) -> (Child, u16) {
    let mut server = tokio::process::Command::from(server);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.as_mut().unwrap()).lines();
    let port = timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
    (server, port.parse().unwrap())
}

#[tokio::test]
async fn the_conformance_suite_says_of_a_server_behind_all_hops_what_it_says_of_it_directly() {
    let mut direct = peers::node("mcp_fixture.cjs");
    direct.arg("http");
    let (_direct, port) = started(direct).await;
    let wanted = scenarios(&format!("http://127.0.0.1:{port}/mcp")).await;
    let modules = format!("NODE_PATH={}", peers::folder().join("node_modules").display());
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/mcp_fixture.cjs");
    // The suite leaves its sessions open.
    let hops = Hops::of(&["--max-sessions", "100"], &["env", &modules, "node", fixture]).await;
    assert_eq!(scenarios(&hops.outermost()).await, wanted);
    assert!(wanted.values().filter(|(passed, _)| *passed).count() >= 30, "{wanted:?}");
}

const SERVERS: [&str; 5] = ["everything", "filesystem", "memory", "time", "fetch"];

#[tokio::test]
async fn the_typescript_client() {
    for server in SERVERS {
        check(server, || peers::node("mcp_clients.cjs")).await;
    }
}

#[tokio::test]
async fn a_server_that_speaks_http_itself() {
    let (_server, port) = started(peers::node("mcp_server.cjs")).await;
    let hops = Hops::http(port).await;
    at_each_entry_point("everything", &hops, || peers::node("mcp_clients.cjs")).await;
    at_each_entry_point("everything", &hops, || peers::python("mcp_clients.py")).await;
}

#[tokio::test]
async fn the_python_client() {
    for server in SERVERS {
        check(server, || peers::python("mcp_clients.py")).await;
    }
}

#[tokio::test]
async fn the_rust_client() {
    for (server, tool, modern) in [("everything", "echo", false), ("time", "get_current_time", true)] {
        let hops = hops(server).await;
        let newest = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        };
        let modes = [(ClientLifecycleMode::Initialize, false), (newest, modern)];
        let doors = hops.entry_points();
        for ((door, url), (mode, modern)) in doors.iter().flat_map(|door| modes.iter().map(move |mode| (door, mode))) {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            let me = ClientConfig::new(Default::default(), Implementation::new("test", "1"));
            let client =
                timeout(SOON, serve_client_with_lifecycle(me, transport, mode.clone())).await.unwrap().unwrap();
            let tools = timeout(SOON, client.list_all_tools()).await.unwrap().unwrap();
            assert!(tools.iter().any(|known| known.name == tool), "{door}: {tools:?}");
            let mut arguments = serde_json::Map::new();
            arguments.insert("message".into(), "hello".into());
            arguments.insert("timezone".into(), "UTC".into());
            let asked = CallToolRequestParams::new(tool).with_arguments(arguments);
            let answer = timeout(SOON, client.call_tool(asked)).await.unwrap().unwrap();
            assert_ne!(answer.is_error, Some(true), "{door}: {answer:?}");
            let version = client.peer_info().unwrap();
            let version = serde_json::to_string(&*version).unwrap();
            assert_eq!(version.contains("2026-07-28"), *modern, "{door}: {version}");
            client.cancel().await.unwrap();
        }
    }
}
