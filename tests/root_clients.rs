//! Tests the root of a gateway with the official clients of OpenAI's API and of MCP: an agent behind all hops, by the name of
//! its model and as a tool.
#![allow(clippy::unwrap_used, dead_code, reason = "a test program, which needs a part of what is shared")]

mod bridge;
mod hops;

use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Command, Stdio},
};

use bridge::SOON;
use hops::Hops;
use testing::peers;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    time::timeout,
};

/// Starts the agent `team/peer` with the stub model on a free port, which it returns. It ends when it is dropped.
async fn agent() -> (Child, u16) {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let mut runner = tokio::process::Command::new(env!("CARGO_BIN_EXE_recif-runner"));
    runner.env_clear().env("CORAIL_PORT", port.to_string());
    runner.envs([("CORAIL_AGENT_NAME", "peer"), ("RECIF_NAMESPACE", "team"), ("CORAIL_SYSTEM_PROMPT", "be brief")]);
    let mut runner = runner.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut log = BufReader::new(runner.stderr.take().unwrap()).lines();
    let listening = async {
        while !log.next_line().await.unwrap().unwrap().contains("listening") {}
        log
    };
    let mut log = timeout(SOON, listening).await.unwrap();
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    (runner, port)
}

/// Runs a script of `tests/peers`. The script checks what it sees, and prints `done` at its end.
async fn check(script: Command, arguments: [&str; 2]) {
    let mut script = tokio::process::Command::from(script);
    let output = timeout(4 * SOON, script.args(arguments).kill_on_drop(true).output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.trim_end().ends_with("done"), "{script:?}\n{out}\n{err}");
}

#[tokio::test]
async fn an_openai_client_names_an_agent_as_its_model() {
    let (_runner, port) = agent().await;
    let hops = Hops::agent(port).await;
    check(peers::python("openai_client.py"), [&hops.root(), "team/peer"]).await;
    check(peers::node("openai_client.cjs"), [&hops.root(), "team/peer"]).await;
}

#[tokio::test]
async fn an_mcp_client_finds_an_agent_as_a_tool() {
    let (_runner, port) = agent().await;
    let hops = Hops::agent(port).await;
    check(peers::python("mcp_agents.py"), [&format!("{}/mcp", hops.root()), "team_peer"]).await;
}
