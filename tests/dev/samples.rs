//! Agents of the tests.

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
{more}"
    )
}
