//! Tests the start of an agent, from `kubectl apply` to a response.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::{
    kinds::{AGENT, CONFIG_MAP, KubeKind, MCP_SERVER, POD, TOOL, WORKLOADS},
    manifests::{NAMED_USER, agent, documents, files, http_tool, text},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{ObjectExt as _, phases},
    scenario::{Scenario, columns, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    the_phases_are_seen_in_order,
    a_running_agent_answers_and_says_where_it_is,
    the_samples_reach_running_and_answer,
    the_documented_agent_runs_unchanged,
    an_image_with_a_named_user_runs,
    a_header_is_kept_in_the_secret_alone,
    the_columns_are_the_documented_ones,
);

async fn the_phases_are_seen_in_order(ns: Namespace) -> Result<()> {
    let recorder = ns.record(AGENT, "steps").await?;
    let running = ns.start(&agent("steps", json!({}))).await?;
    let seen = recorder.up_to(&running).await?;
    let phases = phases(&seen);
    ensure!(phases == ["Pending", "Resolving", "Rendering", "Deploying", "Running"], "seen: {phases:?}");
    let moves = running.transitions_after(0);
    let expected = ["Pending>Resolving", "Resolving>Rendering", "Rendering>Deploying", "Deploying>Running"];
    ensure!(moves.ends_with(&expected.map(String::from)), "history: {moves:?}");
    Ok(())
}

async fn a_running_agent_answers_and_says_where_it_is(ns: Namespace) -> Result<()> {
    let fields = json!({"systemPrompt": "You are brief.", "tools": ["calculator"]});
    let running = ns.start(&agent("talker", fields)).await?;
    let reply = ns.chat("talker", "hi").await?;
    ensure!(reply == "echo: hi", "replied {reply:?}");
    let prompt = ns.chat("talker", "/prompt").await?;
    ensure!(prompt.contains("You are brief."), "its prompt is {prompt:?}");

    let endpoint = running.text("/status/endpoint");
    let expected = format!("http://talker.{}.svc.cluster.local:8000", ns.name);
    ensure!(endpoint == expected, "endpoint {endpoint}");
    ensure!(running.number("/status/replicas") == 1, "ready Pods: {}", running.number("/status/replicas"));
    let available = running.condition("Available");
    ensure!(available.is_true() && available.reason == "DeploymentReady", "Available: {available:?}");
    ensure!(available.message == "Agent deployment is ready", "Available says {:?}", available.message);
    Ok(())
}

async fn the_samples_reach_running_and_answer(ns: Namespace) -> Result<()> {
    let mut workloads = Vec::new();
    let folder = ns.env.file("config/samples");
    for (path, text) in files(&folder)?.into_iter().filter(|(path, _)| !path.ends_with("kustomization.yaml")) {
        for mut document in documents(&text).with_context(|| format!("in {}", path.display()))? {
            if let Some(metadata) = document["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
            let applied = ns.apply(&document).await.with_context(|| format!("in {}", path.display()))?;
            workloads
                .extend(KubeKind::of(&document).filter(|kind| WORKLOADS.contains(kind)).zip(applied.metadata.name));
        }
    }
    for kind in WORKLOADS {
        ensure!(workloads.iter().any(|(it, _)| *it == kind), "{} has no {}", folder.display(), kind.kind);
    }
    for (kind, name) in workloads {
        ns.await_running(kind, &name).await?;
        if kind == AGENT {
            let reply = ns.chat(&name, "hi").await?;
            ensure!(reply == "echo: hi", "{name} replied {reply:?}");
        }
    }
    ns.await_response("greeter", "/", json!({"name": "Ada"}), "echo: Greet Ada and sound friendly.").await?;
    ns.await_response("desk", "/greet", json!({"name": "Bo", "tone": "curt"}), "echo: Greet Bo and sound curt.")
        .await?;
    ns.await_response("desk", "/summarize", json!({"text": "All."}), "echo: Be brief. Summarize: All.").await?;
    let call = json!({"question": "/tool calculator {\"expression\": \"6*7\"}"});
    let answer = ns.post("desk", "/answer", call).await?;
    ensure!(answer.status == 200 && answer.text.contains("42"), "desk answered {answer:?}");
    // All have started at once: the node may not lead to each Service yet.
    ns.await_reply("concierge", r#"/tool greet {"name": "Cy"}"#, |reply| reply.contains("Greet Cy")).await?;
    ns.await_reply("concierge", r#"/tool ask_my_agent {"message": "hi"}"#, |reply| reply.contains("echo: hi")).await?;
    ns.await_running(MCP_SERVER, "clock").await?;
    ns.until(TOOL, "time", START_TIMEOUT, "is listed by its server", |it| it.phase() == "Available").await?;
    Ok(())
}

async fn the_documented_agent_runs_unchanged(ns: Namespace) -> Result<()> {
    let accepted = ns.env.file("e2e/manifests/accept");
    let mut names = Vec::new();
    for document in documents(&text(&accepted.join("agent-documented.yaml"))?)? {
        names.extend(ns.apply(&document).await?.metadata.name);
    }
    let name = names.last().context("no agent in agent-documented.yaml")?;
    let running = ns.await_agent_running(name).await?;
    let bases = running.condition("KnowledgeBasesConfigured");
    ensure!(bases.is_false() && bases.reason == "MissingDatabaseUrl", "KnowledgeBasesConfigured: {bases:?}");
    ensure!(ns.chat(name, "hi").await? == "echo: hi", "{name} does not echo");

    let config = ns.get(CONFIG_MAP, &CONFIG_MAP.child_of(name)).await?;
    let expected = [
        ("CORAIL_CHANNEL", "rest"),
        ("CORAIL_STRATEGY", "simple"),
        ("CORAIL_MODEL_TYPE", "stub"),
        ("CORAIL_MODEL_ID", "stub-echo"),
        ("CORAIL_SYSTEM_PROMPT", "You are a helpful assistant."),
        ("CORAIL_STORAGE", "memory"),
        ("CORAIL_AGENT_NAME", name),
    ];
    for (key, value) in expected {
        let rendered = config.text(&format!("/data/{key}"));
        ensure!(rendered == value, "{key} is {rendered:?}");
    }
    let tools = ns.list(TOOL).await?;
    ensure!(tools.iter().all(|tool| tool.phase() == "Available"), "a documented tool is not Available");
    Ok(())
}

async fn an_image_with_a_named_user_runs(ns: Namespace) -> Result<()> {
    ns.start(&agent("named", json!({"image": NAMED_USER}))).await?;
    ensure!(ns.chat("named", "hi").await? == "echo: hi", "it does not echo");
    let pods = ns.list(POD).await?;
    let user = |pod: &crate::object::Object| {
        let container = pod.number("/spec/containers/0/securityContext/runAsUser");
        if container == 0 { pod.number("/spec/securityContext/runAsUser") } else { container }
    };
    ensure!(pods.iter().all(|pod| user(pod) == 1000), "its Pods do not run as user 1000");
    Ok(())
}

async fn a_header_is_kept_in_the_secret_alone(ns: Namespace) -> Result<()> {
    ns.provide(&http_tool("weather")).await?;
    let running = ns.start(&agent("careful", json!({"tools": ["weather"]}))).await?;
    let secret = ns.get(crate::kinds::SECRET, "careful-config").await?;
    ensure!(!secret.text("/data/CORAIL_TOOLS").is_empty(), "CORAIL_TOOLS is not in the Secret");
    let config = ns.get(CONFIG_MAP, "careful-config").await?;
    ensure!(config.at("/data/CORAIL_TOOLS").is_null(), "CORAIL_TOOLS is in the ConfigMap, too");
    ensure!(!running.data.to_string().contains("hunter2"), "the header's value is in the status");
    Ok(())
}

async fn the_columns_are_the_documented_ones(ns: Namespace) -> Result<()> {
    ns.provide(&crate::manifests::tool("one", json!({}))).await?;
    let seen = |object: &crate::object::Object| !object.phase().is_empty();
    ns.apply(&agent("one", json!({"replicas": 0}))).await?;
    ns.until(AGENT, "one", START_TIMEOUT.min(REPORT_TIMEOUT), "has a phase", seen).await?;
    for (kind, expected) in [
        (AGENT, &["Name", "Phase", "Ready", "Replicas", "Endpoint", "Age"][..]),
        (TOOL, &["Name", "Type", "Category", "Phase", "Age"][..]),
    ] {
        columns(&ns, kind, expected).await?;
    }
    Ok(())
}
