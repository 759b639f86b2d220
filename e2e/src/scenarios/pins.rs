//! Tests that an MCP server cannot change what agents know of its tools until a person has accepted it.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::mcp_servers::{await_available, configure_mcp_workload, remote, remote_tool, start_mcp_workload};
use crate::{
    kinds::{AGENT, CONFIG_MAP, REMOTE_MCP_SERVER, TOOL},
    manifests::agent,
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_changed_definition_waits_until_a_person_accepts_it,
    a_new_tool_and_hidden_text_reach_no_agent,
);

/// Longest wait for a discovery, after changes of the server in a row.
const DISCOVERED: Duration = Duration::from_secs(40);
/// Exit code of a command that is not given what it needs.
const USAGE: i32 = 2;
/// Exit code of a command for an object that is not as it was.
const NOT_READY: i32 = 3;

/// Runs `recif tools` on the namespace.
async fn tools(ns: &Namespace, words: &[&str]) -> Result<(i32, String)> {
    let mut all = vec!["tools"];
    all.extend(words);
    all.extend(["-n", ns.name.as_str()]);
    ns.env.recif(&all).await
}

/// Waits until a definition of `echo` waits that is not this one, and returns its digest.
async fn await_held(ns: &Namespace, known: &str) -> Result<String> {
    let waits = |it: &Object| {
        let digest = held_digest(it, "echo");
        !digest.is_empty() && digest != known && it.condition("DefinitionCurrent").is_false()
    };
    let server = ns.until(REMOTE_MCP_SERVER, "remote", DISCOVERED, "holds a definition", waits).await?;
    Ok(held_digest(&server, "echo").to_owned())
}

fn held_digest<'o>(server: &'o Object, name: &str) -> &'o str {
    let tools = server.at("/status/discoveredTools").as_array();
    let found = tools.into_iter().flatten().find(|tool| tool["name"] == name);
    found.and_then(|tool| tool["heldDigest"].as_str()).unwrap_or_default()
}

/// Reports whether the server has an acceptance that the operator has not ended yet.
fn is_annotated(server: &Object) -> bool {
    server.metadata.annotations.iter().flatten().any(|(name, _)| name == "recif.dev/accept-tools")
}

/// Returns the tools as the agent `caller` has them.
async fn rendered(ns: &Namespace) -> Result<String> {
    Ok(ns.get(CONFIG_MAP, "caller-config").await?.text("/data/CORAIL_TOOLS").to_owned())
}

async fn a_changed_definition_waits_until_a_person_accepts_it(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo").await?;
    ns.apply(&remote(&ns, "remote", "", json!({"onChange": "Hold"}))).await?;
    await_available(&ns, "remote", 1).await?;
    ns.provide(&remote_tool("echo")).await?;
    ns.start(&agent("caller", json!({"tools": ["echo"]}))).await?;
    let before = ns.await_agent_running("caller").await?;

    configure_mcp_workload(&ns, "/tools?names=echo&words=second").await?;
    let second = await_held(&ns, "").await?;
    let told = |it: &Object| it.phase() == "Available" && it.condition("DefinitionCurrent").reason == "ToolChanged";
    ns.until(TOOL, "echo", REPORT_TIMEOUT, "stays Available and says that it changed", told).await?;
    let now = ns.get(AGENT, "caller").await?;
    ensure!(now.revision() == before.revision(), "the agent was written: {}", now.describe());
    let (_, why) = ns.env.recif(&["why", "rmcp/remote", "-n", &ns.name]).await?;
    ensure!(why.contains("read recif tools diff rmcp/remote, which prints the command that accepts it"), "{why}");
    let (code, listed) = tools(&ns, &["rmcp/remote"]).await?;
    ensure!(code == 0 && listed.contains("ToolChanged"), "exit code {code}: {listed}");
    let (code, shown) = tools(&ns, &["diff", "rmcp/remote"]).await?;
    ensure!(code == 0 && shown.contains("-  first\n+  second\n"), "exit code {code}: {shown}");
    ensure!(shown.contains(&format!("echo=sha256:{second}")), "it prints no command that accepts it: {shown}");

    configure_mcp_workload(&ns, "/tools?names=echo&words=third").await?;
    let third = await_held(&ns, &second).await?;
    let stale = format!("echo=sha256:{second}");
    let (code, refused) = tools(&ns, &["accept", "rmcp/remote", &stale]).await?;
    ensure!(code == NOT_READY && refused.contains("has another definition by now"), "exit code {code}: {refused}");
    let annotated = json!({"echo": format!("sha256:{second}")}).to_string();
    ns.edit(REMOTE_MCP_SERVER, "remote", json!({"metadata": {"annotations": {"recif.dev/accept-tools": annotated}}}))
        .await?;
    // The Event of the refusal has the reason of the one of the change, which is there already.
    ns.until(REMOTE_MCP_SERVER, "remote", REPORT_TIMEOUT, "has refused the old definition", |it| !is_annotated(it))
        .await?;
    ns.await_event("remote", "ToolChanged").await?;
    ensure!(rendered(&ns).await?.contains("first"), "what was never shown is in use");

    let (code, refused) = tools(&ns, &["accept", "rmcp/remote", "echo"]).await?;
    ensure!(code == USAGE && refused.contains("by their digests"), "exit code {code}: {refused}");
    let (code, accepted) = tools(&ns, &["accept", "rmcp/remote", &format!("echo=sha256:{third}")]).await?;
    ensure!(code == 0 && accepted.contains("accepted echo sha256:"), "exit code {code}: {accepted}");
    let is_taken = |it: &Object| {
        !is_annotated(it) && it.at("/status/heldCount").is_null() && it.condition("DefinitionCurrent").status.is_empty()
    };
    ns.until(REMOTE_MCP_SERVER, "remote", REPORT_TIMEOUT, "has taken the definition", is_taken).await?;
    let hash = before.text("/status/contentHash").to_owned();
    let rolled = |it: &Object| it.is_running() && it.text("/status/contentHash") != hash;
    ns.until(AGENT, "caller", START_TIMEOUT, "runs with the accepted definition", rolled).await?;
    ensure!(rendered(&ns).await?.contains("third"), "{}", rendered(&ns).await?);
    Ok(())
}

async fn a_new_tool_and_hidden_text_reach_no_agent(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo").await?;
    ns.apply(&remote(&ns, "remote", "", json!({"onChange": "Hold", "publish": {"enabled": true}}))).await?;
    await_available(&ns, "remote", 1).await?;
    ns.start(&agent("caller", json!({"toolServers": [{"name": "remote"}]}))).await?;
    ns.apply(&remote_tool("more")).await?;
    configure_mcp_workload(&ns, "/tools?names=echo,more,sent&words=first").await?;
    let waits = |it: &Object| it.condition("Ready").reason == "ToolNotAccepted";
    ns.until(TOOL, "more", DISCOVERED, "waits for a person", waits).await?;
    ensure!(!rendered(&ns).await?.contains("more"), "{}", rendered(&ns).await?);
    ensure!(ns.list(TOOL).await?.iter().all(|tool| tool.metadata.name.as_deref() != Some("sent")), "it was published");
    let server = ns.get(REMOTE_MCP_SERVER, "remote").await?;
    let counts = (server.number("/status/toolCount"), server.number("/status/heldCount"));
    ensure!(counts == (1, 2), "{}", server.describe());
    // The second one without its name, as one is accepted whose name cannot be typed.
    let more = format!("more=sha256:{}", held_digest(&server, "more"));
    let sent = format!("sha256:{}", held_digest(&server, "sent"));
    let (code, accepted) = tools(&ns, &["accept", "rmcp/remote", &more, &sent]).await?;
    ensure!(code == 0, "exit code {code}: {accepted}");
    await_available(&ns, "remote", 3).await?;
    ns.until(TOOL, "more", REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available").await?;

    configure_mcp_workload(&ns, "/tools?names=echo&words=sly%E2%80%8Btext").await?;
    let hides = |it: &Object| it.condition("DefinitionCurrent").reason == "HiddenText";
    for (name, on_change) in [("sly", "Hold"), ("own", "Adopt")] {
        ns.apply(&remote(&ns, name, "", json!({"onChange": on_change}))).await?;
        let server = ns.until(REMOTE_MCP_SERVER, name, DISCOVERED, "says that text is hidden", hides).await?;
        ensure!(server.number("/status/toolCount") == 0, "{}", server.describe());
    }
    let (_, shown) = tools(&ns, &["diff", "rmcp/sly"]).await?;
    ensure!(shown.contains("+  sly\\u{200b}text") && shown.contains("has the invisible character U+200B"), "{shown}");
    let (code, refused) = tools(&ns, &["accept", "rmcp/sly", "--all"]).await?;
    ensure!(code == 0 && refused.contains("because they hide text"), "exit code {code}: {refused}");
    let (code, listed) = tools(&ns, &["rmcp/sly", "-o", "json"]).await?;
    let listed: Value = serde_json::from_str(&listed)?;
    ensure!(code == 0 && listed["tools"][0]["state"] == "HiddenText", "exit code {code}: {listed}");
    Ok(())
}
