//! Agents of the tests.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The next port of a test. A program that is not ours gets its declared port while that is free: with the same one in all tests
/// a sidecar would lead to the program of another test that was faster.
static NEXT_PORT: AtomicU16 = AtomicU16::new(18_000);

thread_local! {
    /// Port of the programs of this test: each test has a thread of its own.
    static PORT: u16 = NEXT_PORT.fetch_add(1, Relaxed);
}

const AGENT: &str = "apiVersion: agents.recif.dev/v1
kind: Agent
metadata:
  name: a
spec:
  name: A
  framework: corail
  systemPrompt: PROMPT
  replicas: 1
";

/// The program of an agent that is not ours, which knows one answer and streams for a second.
pub(crate) const PROGRAM: &str = include_str!("agent.py");
/// The command that runs it.
pub(crate) const RUN_PROGRAM: &str = "/usr/bin/python3 -S -E -B agent.py";

/// Returns an agent of ours with this prompt.
pub(crate) fn agent(prompt: &str) -> String {
    AGENT.replace("PROMPT", prompt)
}

/// Returns an agent that a command runs, with more lines of its spec.
pub(crate) fn custom(name: &str, command: &str, more: &str) -> String {
    let command = serde_json::to_string(command).unwrap();
    let port = PORT.with(|port| *port);
    let more: String = more.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: agents.recif.dev/v1
kind: Agent
metadata:
  name: {name}
  annotations:
    recif.dev/dev-command: {command}
spec:
  name: {name}
  framework: custom
  image: acme/{name}:1
  port: {port}
{more}"
    )
}
