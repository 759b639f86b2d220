//! Tests that `recif trace` and `recif why` report the actual state, and `recif trace --run` what became of a request.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    kinds::AGENT,
    manifests::agent,
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    why_says_what_a_running_a_waiting_and_a_failed_agent_are,
    trace_shows_every_phase_in_order,
    why_says_what_an_agent_goes_without,
    a_run_is_printed_as_a_tree_where_spans_are_kept,
    the_way_to_running_is_one_run,
);

/// Exit code of `recif why` for an object that is not Ready.
const NOT_READY: i32 = 3;

async fn a_run_is_printed_as_a_tree_where_spans_are_kept(ns: Namespace) -> Result<()> {
    let unknown = "0af7651916cd43dd8448eb211c80319c";
    let (code, text) = ns.env.recif(&["trace", "--run", unknown]).await?;
    if !ns.env.paths.local {
        // The control plane of config/default receives none.
        ensure!(code == 4 && text.contains("set telemetry.endpoint=builtin"), "{code}: {text}");
        return Ok(());
    }
    ensure!(code == 4 && text.contains(unknown), "{code}: {text}");
    let tree = chat_and_trace(&ns).await?;
    let run = tree.lines().find_map(|line| line.strip_prefix("Run ")).context("no id of a run")?;
    let (code, text) = ns.env.recif(&["trace", "--run", run, "-o", "yaml"]).await?;
    ensure!(code == 0 && text.contains("gen_ai.request.model") && !text.contains("canary"), "{code}: {text}");
    Ok(())
}

/// Chats with a new agent through the gateway, as users do, and returns the printed run, in which the gateway stands above the agent.
pub(super) async fn chat_and_trace(ns: &Namespace) -> Result<String> {
    const REQUEST: &str = "POST /v1/agents/{namespace}/{name}";
    const TURN: &str = "invoke_agent traced";
    ns.start(&agent("traced", json!({}))).await?;
    let (code, reply) = ns.env.recif(&["chat", "agent/traced", "canary", "-n", &ns.name]).await?;
    ensure!(code == 0 && reply.contains("echo: canary"), "{code}: {reply}");
    let conversation = reply.split("--conversation ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let conversation = conversation.with_context(|| reply.clone())?;
    let tree = poll(START_TIMEOUT, "the spans of gateway and agent", || async {
        let (code, text) = ns.env.recif(&["trace", "--run", conversation]).await?;
        ensure!(code == 0 || code == 4, "{code}: {text}");
        Ok((code == 0 && [REQUEST, TURN].iter().all(|name| text.contains(name))).then_some(text))
    })
    .await?;
    let owner = format!("Agent {}/traced", ns.name);
    ensure!(tree.contains("chat stub-echo") && tree.contains(&owner) && !tree.contains("canary"), "{tree}");
    ensure!(tree.find(REQUEST) < tree.find(TURN), "{tree}");
    Ok(tree)
}

async fn the_way_to_running_is_one_run(ns: Namespace) -> Result<()> {
    ns.start(&agent("started", json!({}))).await?;
    let run = run_of_start(&ns, "started").await?;
    if ns.env.paths.local { print_steps(&ns, "started", &run).await } else { Ok(()) }
}

/// Returns the id of the run in which an agent that was just made came to Running.
pub(super) async fn run_of_start(ns: &Namespace, name: &str) -> Result<String> {
    let (code, shown) = ns.env.recif(&["trace", &format!("agent/{name}"), "-n", &ns.name, "-o", "json"]).await?;
    ensure!(code == 0, "exit code {code}: {shown}");
    let steps: Vec<Value> = shown.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let run = |phase: &str| {
        let entered = steps.iter().find(|step| step["to"] == phase && step["from"] != phase)?;
        entered["run"].as_str()
    };
    let begun = run("Pending").with_context(|| shown.clone())?;
    ensure!(run("Running") == Some(begun), "another run than {begun}: {shown}");
    Ok(begun.to_owned())
}

/// Waits until the steps of an agent are printed as a run.
pub(super) async fn print_steps(ns: &Namespace, name: &str, run: &str) -> Result<()> {
    let tree = poll(START_TIMEOUT, "the spans of the steps", || async {
        let (code, text) = ns.env.recif(&["trace", "--run", run]).await?;
        ensure!(code == 0 || code == 4, "{code}: {text}");
        Ok((code == 0 && text.contains(" → Running")).then_some(text))
    })
    .await?;
    let owner = format!("Agent {}/{name}", ns.name);
    ensure!(tree.contains("Admit Pending") && tree.contains(&owner), "{tree}");
    Ok(())
}

async fn why_says_what_a_running_a_waiting_and_a_failed_agent_are(ns: Namespace) -> Result<()> {
    ns.apply(&agent("runs", json!({}))).await?;
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.apply(&agent("fails", json!({"storage": "postgresql"}))).await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    ns.await_agent_not_ready("fails", REPORT_TIMEOUT, "Failed", &["MissingDatabaseUrl"]).await?;
    ns.await_agent_running("runs").await?;
    for (name, ready, words) in [
        ("runs", true, &["running"][..]),
        ("waits", false, &["nowhere", "not found"]),
        ("fails", false, &["MissingDatabaseUrl"]),
    ] {
        let (code, text) = ns.env.recif(&["why", &format!("agent/{name}"), "-n", &ns.name]).await?;
        ensure!(code == if ready { 0 } else { NOT_READY }, "of {name} exit code {code}: {text}");
        let reported = |word: &&str| text.to_lowercase().contains(&word.to_lowercase());
        ensure!(words.iter().all(reported), "of {name}, instead of {words:?}: {text}");
    }
    let (code, text) = ns.env.recif(&["why", "agent/absent", "-n", &ns.name]).await?;
    ensure!(code == 4, "of an agent that is not there exit code {code}: {text}");
    let (code, text) = ns.env.recif(&["why", "agent/waits", "-n", &ns.name, "-o", "json"]).await?;
    let answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    ensure!(code == NOT_READY && answer["phase"] == "Resolving" && answer["ready"] == false, "{answer}");
    ensure!(answer["waitingFor"][0].as_str().is_some_and(|line| line.contains("nowhere")), "{answer}");
    let (code, text) = ns.env.recif(&["why", "-n", &ns.name]).await?;
    let about = |name: &str| text.lines().any(|line| line.starts_with(&format!("Agent {}/{name} ", ns.name)));
    ensure!(code == NOT_READY && about("waits") && about("fails") && !about("runs"), "of all exit code {code}: {text}");
    let (code, text) = ns.env.recif(&["why", "-A", "-o", "json"]).await?;
    let all: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let listed = |name: &str| {
        let items = all["items"].as_array().into_iter().flatten();
        items.filter(|item| item["namespace"] == ns.name && item["name"] == name).count()
    };
    ensure!(code == NOT_READY && listed("waits") == 1 && listed("runs") == 0, "of all namespaces: {all}");
    let (code, text) = ns.env.recif(&["why", "agent", "runs", "waits", "-n", &ns.name]).await?;
    ensure!(code == NOT_READY && text.contains("/runs is Ready") && text.contains("/waits is"), "of two: {text}");
    Ok(())
}

async fn trace_shows_every_phase_in_order(ns: Namespace) -> Result<()> {
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    ns.start(&agent("runs", json!({}))).await?;
    let (code, shown) = ns.env.recif(&["trace", "agent/runs", "-n", &ns.name]).await?;
    ensure!(code == 0, "exit code {code}: {shown}");
    let mut rest = shown.as_str();
    for phase in ["Pending", "Resolving", "Rendering", "Deploying", "Running"] {
        let Some(at) = rest.find(phase) else { anyhow::bail!("no {phase} in its place: {shown}") };
        rest = &rest[at..];
    }
    let (_, shown) = ns.env.recif(&["trace", "agent/waits", "-n", &ns.name]).await?;
    ensure!(shown.contains("Resolving") && shown.contains("nowhere"), "of the one that waits: {shown}");
    ensure!(!shown.contains("Rendering"), "of the one that waits: {shown}");
    Ok(())
}

async fn why_says_what_an_agent_goes_without(ns: Namespace) -> Result<()> {
    ns.apply(&agent("seeks", json!({"tools": ["datetime", "web_search"]}))).await?;
    ns.apply(&agent("foreign", json!({"image": "recif.local/theirs:1", "modelType": "soap"}))).await?;
    let running = ns.await_agent_running("seeks").await?;
    let resolved = running.condition("ToolsResolved");
    ensure!(resolved.is_false() && resolved.reason == "NoSearchService", "{}", running.describe());
    let named = |it: &Object| it.condition("ConfigUnderstood").status == "Unknown";
    ns.until(AGENT, "foreign", REPORT_TIMEOUT, "names its provider", named).await?;
    for (name, ready, words) in [("seeks", true, "set SEARXNG_URL in spec.env"), ("foreign", false, "\"soap\"")] {
        let (code, text) = ns.env.recif(&["why", &format!("agent/{name}"), "-n", &ns.name]).await?;
        ensure!(code == if ready { 0 } else { NOT_READY }, "of {name} exit code {code}: {text}");
        ensure!(text.contains(words), "of {name}, instead of {words:?}: {text}");
    }
    let env = json!([{"name": "SEARXNG_URL", "value": "http://searxng.search.svc:8080"}]);
    ns.apply(&agent("seeks", json!({"tools": ["datetime", "web_search"], "env": env}))).await?;
    let whole = |it: &Object| it.is_running() && it.condition("ToolsResolved").status.is_empty();
    ns.until(AGENT, "seeks", START_TIMEOUT, "has its web search", whole).await?;
    Ok(())
}
