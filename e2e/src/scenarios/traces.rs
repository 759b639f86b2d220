//! Tests that a request through the gateway, its turn, and the agent that the turn asks, are one trace at a collector.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{flows::provide_stub, gateway_auth::send_request};
use crate::{
    client::ClientTarget,
    env::Env,
    gateway,
    kinds::AGENT,
    manifests::{agent, tool, workload},
    namespace::{Namespace, START_TIMEOUT},
    operator,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_turn_and_the_agent_that_it_asks_are_one_trace,
);
/// Runs alone: it restarts the gateway.
pub(super) const ALONE: &[Scenario] = scenarios!(Serial:
    a_request_through_the_gateway_is_one_trace_with_its_turn,
);

/// Names of the spans of the turn, in order.
const SPANS: [&str; 6] = [
    "chat stub-echo",
    "chat stub-echo",
    "chat stub-echo",
    "execute_tool ask",
    "invoke_agent asker",
    "invoke_agent other",
];

async fn a_turn_and_the_agent_that_it_asks_are_one_trace(ns: Namespace) -> Result<()> {
    ns.start(&workload("collector", json!({}))).await?;
    provide_stub(&ns).await?;
    let env = env_of_pods(&ns);
    ns.start(&agent("other", json!({"env": env}))).await?;
    ns.provide(&tool("ask", json!({"type": "agent", "agentRef": {"name": "other"}}))).await?;
    ns.start(&agent("asker", json!({"env": env, "tools": ["ask"]}))).await?;

    let service = ClientTarget::service(&ns, "asker").await?;
    let question = r#"{"message": "/tool ask {\"message\": \"canary\"}"}"#;
    // The node may not know the address of the Service yet.
    let answer = poll(START_TIMEOUT, "an answer", || async {
        Ok(Some(send_request(&ns, &service, "POST", "/chat", question).await?))
    })
    .await?;
    ensure!(answer.status == 200 && answer.text.contains("echo: canary"), "{answer:?}");
    let run = answer.header("x-recif-run").context("no x-recif-run")?.to_owned();

    let collector = ClientTarget::service(&ns, "collector").await?;
    let spans = poll(START_TIMEOUT, "the spans of the turn", || async {
        let kept = send_request(&ns, &collector, "GET", "/spans", "").await?;
        ensure!(kept.status == 200 && !kept.text.contains("canary"), "{kept:?}");
        let kept: Value = serde_json::from_str(&kept.text)?;
        let spans = spans(&kept);
        Ok((spans.len() >= SPANS.len()).then_some(spans))
    })
    .await?;
    let mut names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap_or_default()).collect();
    names.sort_unstable();
    ensure!(names == SPANS, "{names:?}");
    ensure!(spans.iter().all(|span| span["traceId"] == run.as_str()), "{run}: {spans:?}");
    let by_id: BTreeMap<_, _> = spans.iter().map(|span| (span["spanId"].as_str().unwrap_or_default(), span)).collect();
    let parent = |name: &str| {
        let span = spans.iter().find(|span| span["name"] == name)?;
        by_id.get(span["parentSpanId"].as_str()?)?["name"].as_str()
    };
    ensure!(parent("execute_tool ask") == Some("invoke_agent asker"), "{spans:?}");
    ensure!(parent("invoke_agent other") == Some("execute_tool ask"), "{spans:?}");
    ensure!(parent("chat stub-echo").is_some(), "{spans:?}");
    Ok(())
}

async fn a_request_through_the_gateway_is_one_trace_with_its_turn(ns: Namespace) -> Result<()> {
    ns.start(&workload("collector", json!({}))).await?;
    provide_stub(&ns).await?;
    ns.start(&agent("traced", json!({"env": env_of_pods(&ns)}))).await?;
    let variables = exporter(&ns);
    set_gateway_env(&ns.env, &variables.each_ref().map(|(name, value)| format!("{name}={value}"))).await?;
    let traced = trace_through_gateway(&ns).await;
    set_gateway_env(&ns.env, &variables.map(|(name, _)| format!("{name}-"))).await?;
    traced
}

async fn trace_through_gateway(ns: &Namespace) -> Result<()> {
    let target = ClientTarget::gateway(ns, AGENT, "traced").await?;
    let answer = poll(START_TIMEOUT, "an answer through the gateway", || async {
        let answer = send_request(ns, &target, "POST", "/chat?canary=query", r#"{"message": "canary"}"#).await?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(Some(answer))
    })
    .await?;
    let run = answer.header("x-recif-run").context("no x-recif-run")?.to_owned();
    let collector = ClientTarget::service(ns, "collector").await?;
    let find = |spans: &[Value], name: &str| {
        let mut found = spans.iter().filter(|span| span["traceId"] == run.as_str() && span["name"] == name);
        found.next().cloned()
    };
    let (request, turn) = poll(START_TIMEOUT, "the spans of the request and its turn", || async {
        let kept = send_request(ns, &collector, "GET", "/spans", "").await?;
        ensure!(kept.status == 200 && !kept.text.contains("canary"), "{kept:?}");
        let spans = spans(&serde_json::from_str(&kept.text)?);
        let request = find(&spans, "POST /v1/agents/{namespace}/{name}");
        Ok(request.zip(find(&spans, "invoke_agent traced")))
    })
    .await?;
    ensure!(request["parentSpanId"].as_str().unwrap_or_default().is_empty(), "{request}");
    ensure!(turn["parentSpanId"] == request["spanId"], "{turn} {request}");
    Ok(())
}

/// Sets variables of the gateway (`NAME=value`), or takes them away (`NAME-`), and waits for its new Pods.
async fn set_gateway_env(env: &Env, changes: &[String]) -> Result<()> {
    let deployment = format!("deployment/{}", gateway::NAME);
    let mut command = vec!["--namespace", operator::NAMESPACE, "set", "env", &deployment];
    command.extend(changes.iter().map(String::as_str));
    env.kubectl(&command).await?;
    gateway::ready(env, 0).await
}

/// Returns the variables by which a process sends its spans to the collector of the namespace.
fn exporter(ns: &Namespace) -> [(&'static str, String); 4] {
    let endpoint = format!("http://collector.{}.svc.cluster.local:8000", ns.name);
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json".to_owned()),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
    ]
}

fn env_of_pods(ns: &Namespace) -> Value {
    exporter(ns).map(|(name, value)| json!({"name": name, "value": value})).to_vec().into()
}

/// Returns all spans of the requests that the collector has kept.
fn spans(kept: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let processes = list(kept).into_iter().flat_map(|request| list(&request["resourceSpans"]));
    let scopes = processes.flat_map(|process| list(&process["scopeSpans"]));
    scopes.flat_map(|scope| list(&scope["spans"])).collect()
}
