//! Tests agents that have the tools of a server by one line, `toolServers`.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::audit::{AuditEvent, describe_requests};
use serde_json::{Value, json};

use super::mcp_servers::{await_available, configure_mcp_workload, remote, start_mcp_workload};
use crate::{
    kinds::{AGENT, TOOL},
    manifests::{agent, tool},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_server_is_used_by_one_line_and_its_new_tools_appear,
    a_tool_in_approval_that_the_server_does_not_have_is_named,
);

/// Longest wait for a new tool: a resync of the server, and a rollout.
const APPEARS: Duration = Duration::from_secs(60).saturating_add(START_TIMEOUT);

/// Exit code of `recif why` for an object that is not Ready.
const NOT_READY: i32 = 3;

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

async fn a_tool_in_approval_that_the_server_does_not_have_is_named(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "delete,echo").await?;
    ns.apply(&remote(&ns, "remote", "", json!({}))).await?;
    await_available(&ns, "remote", 2).await?;
    let asking = |tools: &[&str]| {
        let approval = json!({"when": "Always", "tools": tools});
        json!({"toolServers": [{"name": "remote", "prefix": "x_", "approval": approval}], "storage": "memory"})
    };
    let sentence = |what: &str| {
        let remedy = "write names as the server has them, without prefix; patterns such as delete_* are allowed";
        format!(r#"approval.tools of remotemcpserver "remote": {what} none of its tools: {remedy}"#)
    };
    ns.apply(&agent("typo", asking(&["delte"]))).await?;
    ns.apply(&agent("prefixed", asking(&["x_del*"]))).await?;
    ns.apply(&agent("later", asking(&["wipe", "delete"]))).await?;
    ns.apply(&agent("wild", asking(&["wip*"]))).await?;
    let waiting = [("typo", r#""delte" matches"#), ("prefixed", r#""x_del*" matches"#), ("later", r#""wipe" matches"#)];
    for (name, what) in waiting {
        let sentence = sentence(what);
        let words = ["MissingDependency", sentence.as_str()];
        ns.await_agent_not_ready(name, REPORT_TIMEOUT, "Resolving", &words).await?;
    }
    let (code, why) = ns.env.recif(&["why", "agent/typo", "-n", &ns.name]).await?;
    ensure!(code == NOT_READY && why.contains(&sentence(r#""delte" matches"#)), "exit code {code}: {why}");

    let unmatched = |it: &Object| {
        let resolved = it.condition("ToolsResolved");
        let is_named = resolved.reason == "ApprovalUnmatched" && resolved.message == sentence(r#""wip*" matches"#);
        it.is_running() && resolved.is_false() && is_named
    };
    ns.until(AGENT, "wild", START_TIMEOUT, "runs, and names the glob that matches nothing", unmatched).await?;
    let (code, why) = ns.env.recif(&["why", "agent/wild", "-n", &ns.name]).await?;
    ensure!(code == 0 && why.contains(&sentence(r#""wip*" matches"#)), "exit code {code}: {why}");

    configure_mcp_workload(&ns, "/tools?names=delete,echo,wipe&words=first").await?;
    ns.await_agent_running("later").await?;
    ns.edit(AGENT, "typo", json!({"spec": asking(&["delete"])})).await?;
    let message = json!({"message": r#"/tool x_delete {"message": "hello"}"#});
    for name in ["typo", "later"] {
        let running = ns.await_agent_running(name).await?;
        ensure!(running.condition("ToolsResolved").is_true(), "{}", running.describe());
        let waits = ns.send(name, 8000, "POST", "/chat", &message).await?;
        ensure!(waits.status == 202, "a person approves the call: {waits:?}");
    }
    Ok(())
}

fn user(name: &str, server: Value) -> Value {
    agent(name, json!({"toolServers": [server]}))
}
