//! Tests agents that have the tools of a server by one line, `toolServers`.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::audit::{AuditEvent, describe_requests};
use serde_json::{Value, json};

use super::mcp_servers::{await_available, configure_mcp_workload, remote, start_mcp_workload};
use crate::{
    kinds::{AGENT, TOOL},
    manifests::{agent, tool},
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_server_is_used_by_one_line_and_its_new_tools_appear,
);

/// Longest wait for a new tool: a resync of the server, and a rollout.
const APPEARS: Duration = Duration::from_secs(60).saturating_add(START_TIMEOUT);

/// Number of tools of a large server.
const MANY: i64 = 50;

/// Returns the names of the tools of a large server, among them `echo` and `add`.
fn many_names() -> String {
    let more = (3..=MANY).map(|number| format!("tool{number}"));
    let names: Vec<String> = ["echo", "add"].map(str::to_owned).into_iter().chain(more).collect();
    names.join(",")
}

async fn a_server_is_used_by_one_line_and_its_new_tools_appear(ns: Namespace) -> Result<()> {
    let names = many_names();
    start_mcp_workload(&ns, &names).await?;
    ns.apply(&remote(&ns, "remote", "", json!({}))).await?;
    await_available(&ns, "remote", MANY).await?;
    ns.apply(&user("all", json!({"name": "remote", "prefix": "x_"}))).await?;
    ns.apply(&user("one", json!({"name": "remote", "include": ["ec*"]}))).await?;
    let (all, one) = (ns.await_agent_running("all").await?, ns.await_agent_running("one").await?);
    ensure!(all.condition("ToolsResolved").is_true(), "{}", all.describe());
    ensure!(ns.list(TOOL).await?.is_empty(), "no Tool is needed");
    for tool in ["echo", "tool50"] {
        let reply = ns.chat("all", &format!(r#"/tool x_{tool} {{"message": "hello"}}"#)).await?;
        ensure!(reply.contains(&format!("{tool} says hello")), "the tool replied {reply:?}");
    }

    let mark = ns.mark().await?;
    configure_mcp_workload(&ns, &format!("/tools?names={names},more&words=first")).await?;
    let hash = all.text("/status/contentHash").to_owned();
    let rolled = |it: &Object| it.is_running() && it.text("/status/contentHash") != hash;
    let after = ns.until(AGENT, "all", APPEARS, "runs with the new tool", rolled).await?;
    ensure!(after.generation() == all.generation(), "it was edited: {}", after.describe());
    ns.await_reply("all", r#"/tool x_more {"message": "hello"}"#, |reply| reply.contains("more says hello")).await?;
    let now = ns.get(AGENT, "one").await?;
    ensure!(now.revision() == one.revision(), "it chose nothing that changed: {}", now.describe());
    let requests = ns.operator_requests(mark).await?;
    let about: Vec<&AuditEvent> =
        requests.iter().filter(|it| it.is_write() && (it.name() == "one" || it.name().starts_with("one-"))).collect();
    ensure!(about.is_empty(), "the agent that chose nothing that changed: {}", describe_requests(about));

    let taken = json!({"name": "echo", "type": "mcp", "mcpServerRef": {"name": "remote", "toolName": "add"}});
    ns.provide(&tool("taken", taken)).await?;
    ns.edit(AGENT, "one", json!({"spec": {"tools": ["taken"]}})).await?;
    let left_out = |it: &Object| {
        let resolved = it.condition("ToolsResolved");
        it.is_running() && resolved.reason == "NameConflict" && resolved.contains("Tool/taken has the name")
    };
    ns.until(AGENT, "one", START_TIMEOUT, "runs, and names the tool that is left out", left_out).await?;
    // Of two tools with one name, the Tool is taken.
    ns.await_reply("one", r#"/tool echo {"message": "hello"}"#, |reply| reply.contains("add says hello")).await
}

fn user(name: &str, server: Value) -> Value {
    agent(name, json!({"toolServers": [server]}))
}
