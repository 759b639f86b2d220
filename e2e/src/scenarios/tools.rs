//! Tests tools that are created late, change, break and are deleted, and the agents that use them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, CONFIG_MAP, DEPLOYMENT, TOOL},
    manifests::{agent, http_tool, tool},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, moved_at},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_tool_created_later_is_picked_up_at_once,
    a_missing_builtin_needs_no_object,
    a_disabled_tool_is_left_out,
    an_edited_tool_rolls_exactly_its_users,
    an_edit_that_renders_the_same_restarts_nothing,
    a_tool_that_breaks_is_named_and_the_old_pods_stay,
    a_deleted_tool_is_named_and_the_old_pods_stay,
    a_tool_without_what_its_type_needs_says_what,
);

async fn a_tool_created_later_is_picked_up_at_once(ns: Namespace) -> Result<()> {
    ns.apply(&agent("patient", json!({"tools": ["first", "second"]}))).await?;
    let waits = |words: &'static [&'static str], not: &'static str| {
        move |object: &Object| {
            let resolved = object.condition("ReferencesResolved");
            object.phase() == "Resolving"
                && resolved.is_false()
                && words.iter().all(|word| resolved.contains(word))
                && (not.is_empty() || !resolved.contains(not))
        }
    };
    let both = waits(&["first", "second"], "");
    ns.until(AGENT, "patient", REPORT_TIMEOUT, "names both missing tools", both).await?;
    ns.provide(&tool("first", json!({}))).await?;
    let one = waits(&["second"], "first");
    ns.until(AGENT, "patient", REPORT_TIMEOUT, "names only the tool still missing", one).await?;

    let second = ns.provide(&tool("second", json!({}))).await?;
    ns.until(AGENT, "patient", REPORT_TIMEOUT, "goes on", |it| !matches!(it.phase(), "Pending" | "Resolving")).await?;
    let running = ns.await_agent_running("patient").await?;
    // By the operator's times: on a busy machine the test itself may hear of both a while later.
    let available = moved_at(&second, |_, to| to == "Available").context("no time of the tool")?;
    let went_on = moved_at(&running, |from, _| from == "Resolving").context("no time of the agent")?;
    let took = went_on.duration_since(available);
    ensure!(took <= SignedDuration::from_secs(1), "it went on {took:?} after the tool was there");
    ensure!(running.condition("ReferencesResolved").is_true(), "{}", running.describe());
    Ok(())
}

async fn a_missing_builtin_needs_no_object(ns: Namespace) -> Result<()> {
    ns.start(&agent("builtin", json!({"tools": ["calculator", "web-search"]}))).await?;
    let tools = rendered_tools(&ns, "builtin").await?;
    let expected = json!([{"name": "calculator", "type": "builtin"}, {"name": "web-search", "type": "builtin"}]);
    ensure!(tools == expected, "CORAIL_TOOLS is {tools}");
    let reply = ns.chat("builtin", r#"/tool calculator {"expression": "6*7"}"#).await?;
    ensure!(reply.contains("42"), "the calculator replied {reply:?}");
    Ok(())
}

async fn a_disabled_tool_is_left_out(ns: Namespace) -> Result<()> {
    ns.provide(&tool("kept", json!({}))).await?;
    ns.provide(&tool("dropped", json!({}))).await?;
    let before = ns.start(&agent("picky", json!({"tools": ["kept", "dropped"]}))).await?;
    ns.edit(TOOL, "dropped", json!({"spec": {"enabled": false}})).await?;
    await_change(&ns, "picky", &before, "runs with the new configuration", |it| differs(it, &before)).await?;
    let tools = rendered_tools(&ns, "picky").await?;
    let names = tool_names(&tools);
    ensure!(names == ["kept"], "CORAIL_TOOLS names {names:?}");
    Ok(())
}

async fn an_edited_tool_rolls_exactly_its_users(ns: Namespace) -> Result<()> {
    ns.provide(&tool("shared", json!({"description": "before"}))).await?;
    ns.provide(&tool("other", json!({}))).await?;
    for (name, tools) in [("user", json!(["shared"])), ("bystander", json!(["other"]))] {
        ns.apply(&agent(name, json!({"tools": tools}))).await?;
    }
    let user = ns.await_agent_running("user").await?;
    let bystander = ns.await_agent_running("bystander").await?;
    let pods = ns.pod_uids("bystander").await?;

    ns.edit(TOOL, "shared", json!({"spec": {"description": "after"}})).await?;
    await_change(&ns, "user", &user, "runs with the new configuration", |it| differs(it, &user)).await?;
    let tools = rendered_tools(&ns, "user").await?;
    ensure!(tools[0]["description"] == "after", "CORAIL_TOOLS is {tools}");
    let now = ns.get(AGENT, "bystander").await?;
    ensure!(now.revision() == bystander.revision(), "the other agent was written: {}", now.describe());
    ensure!(ns.pod_uids("bystander").await? == pods, "the other agent's Pods were replaced");
    Ok(())
}

async fn an_edit_that_renders_the_same_restarts_nothing(ns: Namespace) -> Result<()> {
    ns.provide(&tool("shared", json!({"category": "before"}))).await?;
    let before = ns.start(&agent("calm", json!({"tools": ["shared"]}))).await?;
    let deployment = ns.get(DEPLOYMENT, "calm").await?;
    let pods = ns.pod_uids("calm").await?;

    let edited = ns.edit(TOOL, "shared", json!({"spec": {"category": "after"}})).await?;
    let looked =
        |it: &Object| it.phase() == "Available" && it.number("/status/observedGeneration") == edited.generation();
    ns.until(TOOL, "shared", REPORT_TIMEOUT, "is Available again", looked).await?;
    crate::watch::stays_the_same(vec![(DEPLOYMENT, ns.api(DEPLOYMENT))], Duration::from_secs(3)).await?;
    let now = ns.await_agent_running("calm").await?;
    ensure!(now.text("/status/contentHash") == before.text("/status/contentHash"), "the content hash changed");
    let generation = ns.get(DEPLOYMENT, "calm").await?.generation();
    ensure!(generation == deployment.generation(), "the Deployment was changed: generation {generation}");
    ensure!(ns.pod_uids("calm").await? == pods, "its Pods were replaced");
    Ok(())
}

async fn a_tool_that_breaks_is_named_and_the_old_pods_stay(ns: Namespace) -> Result<()> {
    ns.provide(&http_tool("weather")).await?;
    let before = ns.start(&agent("steadfast", json!({"tools": ["weather"]}))).await?;
    let pods = ns.pod_uids("steadfast").await?;
    ns.edit(TOOL, "weather", json!({"spec": {"endpoint": null}})).await?;
    await_error(&ns, "weather", "HTTP tool requires an endpoint").await?;
    let waiting = ns.await_agent_not_ready("steadfast", REPORT_TIMEOUT, "Resolving", &["weather"]).await?;
    ensure!(waiting.condition("Available").is_true(), "its Pods no longer count: {}", waiting.describe());
    ensure!(ns.chat("steadfast", "hi").await? == "echo: hi", "the old Pods do not answer");
    ensure!(ns.pod_uids("steadfast").await? == pods, "its Pods were replaced");

    ns.edit(TOOL, "weather", json!({"spec": {"endpoint": "http://weather.example/later"}})).await?;
    await_change(&ns, "steadfast", &before, "runs with the fixed tool", |it| differs(it, &before)).await?;
    Ok(())
}

async fn a_deleted_tool_is_named_and_the_old_pods_stay(ns: Namespace) -> Result<()> {
    ns.provide(&tool("lost", json!({}))).await?;
    let before = ns.start(&agent("loyal", json!({"tools": ["lost"]}))).await?;
    let pods = ns.pod_uids("loyal").await?;
    ns.delete(TOOL, "lost").await?;
    ns.await_agent_not_ready("loyal", REPORT_TIMEOUT, "Resolving", &["lost"]).await?;
    ensure!(ns.chat("loyal", "hi").await? == "echo: hi", "the old Pods do not answer");

    ns.provide(&tool("lost", json!({}))).await?;
    let now = ns.await_agent_running("loyal").await?;
    ensure!(now.text("/status/contentHash") == before.text("/status/contentHash"), "the content hash changed");
    ensure!(ns.pod_uids("loyal").await? == pods, "the same tool again replaced the Pods");
    Ok(())
}

async fn a_tool_without_what_its_type_needs_says_what(ns: Namespace) -> Result<()> {
    let cases = [
        ("http", "HTTP tool requires an endpoint"),
        ("cli", "CLI tool requires a binary"),
        ("mcp", "MCP tool requires an mcpEndpoint or an mcpServerRef"),
    ];
    for (type_, _) in cases {
        ns.apply(&tool(type_, json!({"type": type_}))).await?;
    }
    for (type_, message) in cases {
        await_error(&ns, type_, message).await?;
    }
    ns.edit(TOOL, "cli", json!({"spec": {"binary": "kubectl"}})).await?;
    ns.until(TOOL, "cli", REPORT_TIMEOUT, "is Available once fixed", |tool| tool.phase() == "Available").await?;
    Ok(())
}

async fn await_error(ns: &Namespace, tool: &str, message: &str) -> Result<Object> {
    let what = format!("is in Error and says {message:?}");
    let says = |tool: &Object| {
        let (ready, stalled) = (tool.condition("Ready"), tool.condition("Stalled"));
        tool.phase() == "Error" && ready.is_false() && stalled.is_true() && ready.contains(message)
    };
    ns.until(TOOL, tool, REPORT_TIMEOUT, &what, says).await
}

/// Waits until the agent runs again after a change of its status that the predicate accepts.
async fn await_change(
    ns: &Namespace,
    agent: &str,
    before: &Object,
    what: &str,
    changed: impl Fn(&Object) -> bool,
) -> Result<Object> {
    let seq = before.last_seq();
    ns.until(AGENT, agent, START_TIMEOUT, what, |it| it.is_running() && it.last_seq() > seq && changed(it)).await
}

fn differs(now: &Object, before: &Object) -> bool {
    now.text("/status/contentHash") != before.text("/status/contentHash")
}

async fn rendered_tools(ns: &Namespace, agent: &str) -> Result<Value> {
    let config = ns.get(CONFIG_MAP, &CONFIG_MAP.child_of(agent)).await?;
    Ok(serde_json::from_str(config.text("/data/CORAIL_TOOLS"))?)
}

fn tool_names(tools: &Value) -> Vec<&str> {
    tools.as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}
