//! Tests that a turn, with the agent that it asks, is one trace at a collector.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{flows::provide_stub, gateway_auth::send_request};
use crate::{
    client::ClientTarget,
    manifests::{agent, tool, workload},
    namespace::{Namespace, START_TIMEOUT},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_turn_and_the_agent_that_it_asks_are_one_trace,
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
    let endpoint = format!("http://collector.{}.svc.cluster.local:8000", ns.name);
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let env = json!([
        variable("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        variable("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        variable("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        variable("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ]);
    ns.start(&agent("other", json!({"env": env}))).await?;
    ns.provide(&tool("ask", json!({"type": "agent", "agentRef": {"name": "other"}}))).await?;
    ns.start(&agent("asker", json!({"env": env, "tools": ["ask"]}))).await?;

    let service = ClientTarget::service(&ns, "asker").await?;
    let question = r#"{"message": "/tool ask {\"message\": \"canary\"}"}"#;
    let answer = send_request(&ns, &service, "POST", "/chat", question).await?;
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

/// Returns all spans of the requests that the collector has kept.
fn spans(kept: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let processes = list(kept).into_iter().flat_map(|request| list(&request["resourceSpans"]));
    let scopes = processes.flat_map(|process| list(&process["scopeSpans"]));
    scopes.flat_map(|scope| list(&scope["spans"])).collect()
}
