//! Tests MCP servers: the discovery of their tools, misbehaving servers, and the users of their tools.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::audit::{AuditEvent, describe_requests};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, CONFIG_MAP, MCP_SERVER, NAMESPACE, POD, REMOTE_MCP_SERVER, SECRET, TOOL},
    manifests::{WORKLOAD, agent, object, secret, tool, workload},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, columns, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_discovered_tool_is_rendered_and_called,
    other_tools_roll_only_their_users,
    a_server_that_misbehaves_says_how_and_delays_no_other,
    a_rotated_secret_is_used_at_once,
    a_server_made_again_under_its_name_is_asked_anew,
    published_tools_are_tools_like_any_other,
    another_namespace_uses_a_server_while_it_is_allowed_to,
    a_program_that_speaks_over_pipes_is_served_and_called,
    a_server_over_http_is_asked_again_when_its_pods_change,
);

/// Longest wait for a resync: longer than the shortest interval.
const RESYNC: Duration = Duration::from_secs(20);

/// Starts the workload `mcp` as an MCP server with these tools.
pub(super) async fn start_mcp_workload(ns: &Namespace, tools: &str) -> Result<()> {
    ns.start(&workload("mcp", json!({}))).await?;
    configure_mcp_workload(ns, &format!("/tools?names={tools}&words=first")).await
}

/// Configures the workload `mcp`, to which the API server leads only a while after its Pod is ready.
pub(super) async fn configure_mcp_workload(ns: &Namespace, path: &str) -> Result<()> {
    poll(START_TIMEOUT, "the MCP server configured", || async {
        let answer = ns.send("mcp", 8000, "GET", path, &Value::Null).await?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
        Ok(Some(()))
    })
    .await
}

/// Returns a RemoteMCPServer for the path of `mcp` with this query, whose changes are followed unless `more` says otherwise.
pub(super) fn remote(ns: &Namespace, name: &str, query: &str, more: Value) -> Value {
    let url = format!("http://mcp.{}.svc.cluster.local:8000/mcp{query}", ns.name);
    let mut spec = json!({"url": url, "resync": "2s", "onChange": "Adopt"});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    object(REMOTE_MCP_SERVER, name, spec)
}

/// Returns a Tool for the tool of this name of the server `remote`.
pub(super) fn remote_tool(name: &str) -> Value {
    tool(
        name,
        json!({"name": format!("my_{name}"), "type": "mcp", "mcpServerRef": {"name": "remote", "toolName": name}}),
    )
}

pub(super) async fn await_available(ns: &Namespace, name: &str, tools: i64) -> Result<Object> {
    let there = |it: &Object| it.phase() == "Available" && it.is_current() && it.number("/status/toolCount") == tools;
    ns.until(REMOTE_MCP_SERVER, name, RESYNC, &format!("is Available with {tools} tools"), there).await
}

async fn a_discovered_tool_is_rendered_and_called(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo,add").await?;
    ns.apply(&remote(&ns, "remote", "", json!({}))).await?;
    let server = await_available(&ns, "remote", 2).await?;
    ensure!(server.text("/status/discoveredTools/0/name") == "add", "{}", server.describe());
    ensure!(
        server.text("/status/serverInfo/name") == "workload" && server.text("/status/era") == "initialize",
        "{server:?}"
    );
    let kept = ns.get(CONFIG_MAP, "remote.mcp-tools").await?;
    ensure!(kept.text("/data/tools.json").contains("\"echo\""), "the definitions are {:?}", kept.data);
    columns(&ns, REMOTE_MCP_SERVER, &["Name", "Protocol", "URL", "Tools", "Phase", "Age"]).await?;
    ns.provide(&remote_tool("echo")).await?;
    ns.start(&agent("caller", json!({"tools": ["echo"]}))).await?;
    let reply = ns.chat("caller", r#"/tool my_echo {"message": "hello"}"#).await?;
    ensure!(reply.contains("echo says hello"), "the tool replied {reply:?}");
    Ok(())
}

async fn other_tools_roll_only_their_users(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo,add").await?;
    ns.apply(&remote(&ns, "remote", "", json!({}))).await?;
    await_available(&ns, "remote", 2).await?;
    for name in ["echo", "add"] {
        ns.provide(&remote_tool(name)).await?;
        ns.apply(&agent(&format!("with-{name}"), json!({"tools": [name]}))).await?;
    }
    let (echo, add) = (ns.await_agent_running("with-echo").await?, ns.await_agent_running("with-add").await?);
    let mark = ns.mark().await?;
    configure_mcp_workload(&ns, "/tools?names=add&words=first").await?;
    let gone = ["ToolNotFound", "has no tool"];
    ns.until(TOOL, "echo", RESYNC, "is in Error", |it| {
        it.phase() == "Error" && gone.iter().all(|words| it.condition("Ready").contains(words))
    })
    .await?;
    ns.until(AGENT, "with-echo", REPORT_TIMEOUT, "waits for its tool", |it| it.phase() == "Resolving").await?;
    let now = ns.get(AGENT, "with-add").await?;
    ensure!(now.revision() == add.revision(), "the other agent was written: {}", now.describe());
    let requests = ns.operator_requests(mark).await?;
    let (others, about): (Vec<&AuditEvent>, Vec<_>) =
        requests.iter().filter(|it| it.is_write()).partition(|it| !it.name().starts_with("with-add"));
    ensure!(about.is_empty(), "the agent that uses another tool: {}", describe_requests(about));
    ensure!(others.iter().any(|it| it.name() == "with-echo"), "seen: {}", describe_requests(others));
    configure_mcp_workload(&ns, "/tools?names=echo,add&words=first").await?;
    let back = ns.await_agent_running("with-echo").await?;
    ensure!(back.text("/status/contentHash") == echo.text("/status/contentHash"), "{}", back.describe());
    Ok(())
}

async fn a_server_that_misbehaves_says_how_and_delays_no_other(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo").await?;
    let manners = [
        ("hang", "ServerTimeout", "within 2 s"),
        ("drip", "ServerTimeout", "within 2 s"),
        ("garbage", "InvalidServerAnswer", "JSON-RPC"),
        ("huge", "InvalidServerAnswer", "more than 2 MiB"),
        ("redirect", "ServerRefused", "redirects to another place"),
        ("refuse", "ServerRefused", "Host header"),
    ];
    for (manner, ..) in manners {
        ns.apply(&remote(&ns, manner, &format!("?manner={manner}"), json!({"timeout": "2s"}))).await?;
    }
    // One after another, these alone would take thirty seconds.
    for name in ["slow-1", "slow-2", "slow-3"] {
        ns.apply(&remote(&ns, name, "?manner=hang", json!({"timeout": "10s"}))).await?;
    }
    ns.apply(&remote(&ns, "well", "", json!({}))).await?;
    ns.until(REMOTE_MCP_SERVER, "well", REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available").await?;
    for (manner, reason, words) in manners {
        let message = |it: &Object| {
            let stalled = it.condition("Stalled");
            it.phase() == "Error" && stalled.is_true() && stalled.reason == reason && stalled.contains(words)
        };
        ns.until(REMOTE_MCP_SERVER, manner, RESYNC, &format!("is in Error, {reason}: {words}"), message).await?;
    }
    let denied = json!({"url": "http://169.254.169.254/mcp"});
    ns.apply(&remote(&ns, "metadata", "", denied)).await?;
    let refused = |it: &Object| it.condition("Stalled").reason == "AddressDenied";
    ns.until(REMOTE_MCP_SERVER, "metadata", REPORT_TIMEOUT, "is denied", refused).await?;
    ns.apply(&remote(&ns, "many", "?manner=many", json!({"resync": "1h"}))).await?;
    let many = await_available(&ns, "many", 1000).await?;
    ensure!(many.condition("ToolsDiscovered").reason == "TooManyTools", "{}", many.describe());
    let before = ns.get(REMOTE_MCP_SERVER, "well").await?.revision();
    configure_mcp_workload(&ns, "/tools?names=echo,more&words=first").await?;
    let after = await_available(&ns, "well", 2).await?;
    ensure!(after.revision() > before, "the server that is well was not looked at");
    Ok(())
}

async fn a_rotated_secret_is_used_at_once(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo").await?;
    configure_mcp_workload(&ns, "/token?is=one").await?;
    let header = json!({"name": "Authorization", "valueFrom": {"type": "Secret", "name": "token", "key": "header"}});
    ns.apply(&remote(&ns, "remote", "", json!({"headersFrom": [header], "resync": "1h"}))).await?;
    ns.await_not_ready(REMOTE_MCP_SERVER, "remote", REPORT_TIMEOUT, "Resolving", &["secret \"token\" not found"])
        .await?;
    ns.apply(&secret("token", json!({"header": "Bearer one"}))).await?;
    await_available(&ns, "remote", 1).await?;
    configure_mcp_workload(&ns, "/token?is=two").await?;
    ns.apply(&secret("token", json!({"header": "Bearer wrong"}))).await?;
    let refused = |it: &Object| it.phase() == "Error" && it.condition("Stalled").contains("401");
    let failed = ns.until(REMOTE_MCP_SERVER, "remote", RESYNC, "is refused", refused).await?;
    ensure!(failed.number("/status/toolCount") == 1, "its tools were forgotten: {}", failed.describe());
    ns.apply(&secret("token", json!({"header": "Bearer two"}))).await?;
    await_available(&ns, "remote", 1).await?;
    let kept = ns.get(SECRET, "token").await?;
    ensure!(kept.data.to_string().contains("header"), "the Secret is gone");
    let status = ns.get(REMOTE_MCP_SERVER, "remote").await?.at("/status").to_string();
    ensure!(!status.contains("Bearer"), "a credential is in the status");
    Ok(())
}

async fn a_server_made_again_under_its_name_is_asked_anew(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo").await?;
    ns.apply(&remote(&ns, "remote", "", json!({"resync": "1h"}))).await?;
    let old = await_available(&ns, "remote", 1).await?;
    ns.provide(&remote_tool("echo")).await?;
    ns.delete(REMOTE_MCP_SERVER, "remote").await?;
    ns.until_gone(REMOTE_MCP_SERVER, "remote", REPORT_TIMEOUT).await?;
    ns.await_not_ready(TOOL, "echo", REPORT_TIMEOUT, "Resolving", &["remotemcpserver \"remote\" not found"]).await?;
    ns.until_gone(CONFIG_MAP, "remote.mcp-tools", START_TIMEOUT).await?;
    configure_mcp_workload(&ns, "/tools?names=echo,add&words=second").await?;
    ns.apply(&remote(&ns, "remote", "", json!({"resync": "1h"}))).await?;
    let new = await_available(&ns, "remote", 2).await?;
    ensure!(new.uid() != old.uid(), "it is the old one");
    ns.until(TOOL, "echo", REPORT_TIMEOUT, "is Available again", |it| it.phase() == "Available").await?;
    Ok(())
}

async fn published_tools_are_tools_like_any_other(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo,add_all").await?;
    ns.apply(&tool("my-echo", json!({}))).await?;
    let publish = json!({"publish": {"enabled": true, "prefix": "my-"}});
    ns.apply(&remote(&ns, "remote", "", publish)).await?;
    ns.until(TOOL, "my-add-all", RESYNC, "is Available", |it| it.phase() == "Available").await?;
    let conflict = |it: &Object| it.condition("ToolsPublished").contains("my-echo");
    ns.until(REMOTE_MCP_SERVER, "remote", REPORT_TIMEOUT, "names the Tool of another owner", conflict).await?;
    ensure!(ns.get(TOOL, "my-echo").await?.text("/spec/type") == "builtin", "the Tool of another owner was changed");
    ns.start(&agent("caller", json!({"tools": ["my-add-all"]}))).await?;
    let reply = ns.chat("caller", r#"/tool add_all {"message": "hello"}"#).await?;
    ensure!(reply.contains("add_all says hello"), "the tool replied {reply:?}");
    ns.delete(TOOL, "my-add-all").await?;
    ns.until(TOOL, "my-add-all", RESYNC, "is made again", |it| it.phase() == "Available").await?;
    ns.await_agent_running("caller").await?;
    // The operator first checks whether the server is unchanged.
    let description = ns.get(TOOL, "my-add-all").await?.text("/spec/description").to_owned();
    ns.edit(TOOL, "my-add-all", json!({"spec": {"description": "Mine."}})).await?;
    ns.until(TOOL, "my-add-all", RESYNC, "is put back", |it| it.text("/spec/description") == description).await?;
    configure_mcp_workload(&ns, "/tools?names=echo&words=first").await?;
    let in_error = |it: &Object| it.phase() == "Error" && it.condition("Ready").contains("has no tool");
    ns.until(TOOL, "my-add-all", RESYNC, "stays in Error while it is used", in_error).await?;
    ns.delete(AGENT, "caller").await?;
    ns.until_gone(TOOL, "my-add-all", START_TIMEOUT).await
}

async fn another_namespace_uses_a_server_while_it_is_allowed_to(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo").await?;
    ns.apply(&remote(&ns, "remote", "", json!({"resync": "1h"}))).await?;
    await_available(&ns, "remote", 1).await?;
    let other = Namespace::create(ns.env.clone(), &format!("{}-other", ns.name)).await?;
    let result = admitted(&ns, &other).await;
    other.delete_itself().await?;
    result
}

async fn admitted(ns: &Namespace, other: &Namespace) -> Result<()> {
    let server = json!({"name": "remote", "namespace": ns.name, "toolName": "echo"});
    other.apply(&tool("echo", json!({"type": "mcp", "mcpServerRef": server}))).await?;
    let allow = async |allowed: serde_json::Value| {
        ns.edit(REMOTE_MCP_SERVER, "remote", json!({"spec": {"allowedNamespaces": allowed}})).await
    };
    let open = async || other.until(TOOL, "echo", REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available").await;
    let shut = async || {
        other.await_not_ready(TOOL, "echo", REPORT_TIMEOUT, "Resolving", &["may not be used from namespace"]).await
    };
    shut().await?;
    allow(json!({"from": "All"})).await?;
    open().await?;
    allow(json!({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}})).await?;
    shut().await?;
    let label = async |team: serde_json::Value| {
        let patch = json!({"metadata": {"labels": {"team": team}}});
        let params = kube::api::PatchParams::default();
        other.env.all(NAMESPACE).patch(&other.name, &params, &kube::api::Patch::Merge(patch)).await
    };
    label(json!("a")).await?;
    open().await?;
    label(json!(null)).await?;
    shut().await?;
    Ok(())
}

/// Returns an MCPServer with this transport and these additional fields in its deployment.
pub(super) fn run(name: &str, transport: &str, more: Value) -> Value {
    let mut deployment = json!({"image": WORKLOAD});
    for (field, value) in more.as_object().into_iter().flatten() {
        deployment[field] = value.clone();
    }
    object(MCP_SERVER, name, json!({"transportType": transport, "deployment": deployment}))
}

fn tool_of(server: &str) -> Value {
    tool("echo", json!({"type": "mcp", "mcpServerRef": {"kind": "MCPServer", "name": server}}))
}

/// Creates the MCPServer `pipes` with the tools `echo` and `add`, the RemoteMCPServer `elsewhere` for the same server,
/// which publishes these tools, and the agent `calls`, which uses one of them. The interval of the discovery is one hour.
pub(super) async fn start_servers_and_a_user(ns: &Namespace) -> Result<()> {
    let mut pipes = run("pipes", "stdio", json!({"cmd": "/workload", "args": ["mcp", "echo", "add"]}));
    pipes["spec"]["resync"] = json!("1h");
    ns.start(&pipes).await?;
    let reported = |it: &Object| it.number("/status/toolCount") == 2 && it.condition("ToolsDiscovered").is_true();
    ns.until(MCP_SERVER, "pipes", RESYNC, "has listed its tools", reported).await?;
    let url = format!("http://pipes.{}.svc.cluster.local:3000/mcp", ns.name);
    let elsewhere = json!({"url": url, "resync": "1h", "publish": {"enabled": true}});
    ns.apply(&object(REMOTE_MCP_SERVER, "elsewhere", elsewhere)).await?;
    await_available(ns, "elsewhere", 2).await?;
    for name in ["echo", "add"] {
        ns.until(TOOL, name, REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available" && it.is_current()).await?;
    }
    ns.start(&agent("calls", json!({"tools": ["echo"]}))).await?;
    for name in ["pipes", "calls"] {
        ns.await_event(name, "Running").await?;
    }
    Ok(())
}

async fn a_program_that_speaks_over_pipes_is_served_and_called(ns: Namespace) -> Result<()> {
    ns.apply(&tool_of("pipes")).await?;
    ns.start(&run("pipes", "stdio", json!({"cmd": "/workload", "args": ["mcp", "echo", "add"]}))).await?;
    let reported = |it: &Object| it.number("/status/toolCount") == 2 && it.condition("ToolsDiscovered").is_true();
    let server = ns.until(MCP_SERVER, "pipes", RESYNC, "has listed its tools", reported).await?;
    ensure!(server.text("/status/endpoint").ends_with(":3000/mcp"), "{}", server.describe());
    columns(&ns, MCP_SERVER, &["Name", "Transport", "Tools", "Phase", "Ready", "Replicas", "Age"]).await?;
    ns.start(&agent("caller", json!({"tools": ["echo"]}))).await?;
    let reply = ns.chat("caller", r#"/tool echo {"message": "hello"}"#).await?;
    ensure!(reply.contains("echo says hello"), "the tool replied {reply:?}");
    ns.delete(MCP_SERVER, "pipes").await?;
    ns.until_gone(MCP_SERVER, "pipes", START_TIMEOUT).await?;
    ns.await_not_ready(TOOL, "echo", REPORT_TIMEOUT, "Resolving", &["mcpserver \"pipes\" not found"]).await.map(drop)
}

async fn a_server_over_http_is_asked_again_when_its_pods_change(ns: Namespace) -> Result<()> {
    let mut server = run("mcp", "http", json!({"port": 8000}));
    server["spec"]["resync"] = json!("1s");
    ns.start(&server).await?;
    configure_mcp_workload(&ns, "/tools?names=echo&words=first").await?;
    let tools = |count: i64| move |it: &Object| it.is_running() && it.number("/status/toolCount") == count;
    ns.until(MCP_SERVER, "mcp", RESYNC, "has listed its tool", tools(1)).await?;
    ns.edit(MCP_SERVER, "mcp", json!({"spec": {"resync": "1h"}})).await?;
    ns.await_running(MCP_SERVER, "mcp").await?;
    // A Pod knows only the tools that were configured in it, so its successor has none, which only a new discovery finds.
    let pod = ns.list(POD).await?.pop().context("no Pod")?;
    ns.delete(POD, &pod.name_any()).await?;
    let before = ns.until(MCP_SERVER, "mcp", START_TIMEOUT, "lists no tools of its new Pod", tools(0)).await?;
    ns.edit(MCP_SERVER, "mcp", json!({"spec": {"deployment": {"env": {"A": "1"}}}})).await?;
    let moved = before.last_seq();
    ns.until(MCP_SERVER, "mcp", START_TIMEOUT, "runs again", |it| it.is_running() && it.last_seq() > moved).await?;
    // The result of the new Pods is written once.
    let quiet = async || Ok(ns.stays_the_same(Duration::from_secs(3)).await.ok());
    poll(START_TIMEOUT, "nothing changes any more", quiet).await
}
