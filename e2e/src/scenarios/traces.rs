//! Tests that a request through the gateway, its turn, and the agent that the turn asks, are one trace at a collector.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{
    flows::provide_stub,
    gateway_auth::send_request,
    mcp_servers::{await_available, remote, start_mcp_workload},
};
use crate::{
    client::ClientTarget,
    env::Env,
    gateway,
    kinds::{AGENT, MODEL},
    manifests::{agent, object, plugin_config, secret, tool, workload},
    namespace::{Namespace, START_TIMEOUT},
    operator,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_turn_and_the_agent_that_it_asks_are_one_trace,
    where_content_is_captured_spans_hold_it_without_secrets,
);
/// Runs alone: it restarts the gateway.
pub(super) const ALONE: &[Scenario] = scenarios!(Serial:
    a_request_through_the_gateway_is_one_trace_with_its_turn_and_the_tools_that_it_calls,
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

/// Spans of a run that have the same name, kind and parent.
struct ExpectedSpans {
    name: &'static str,
    /// Number of the kind by OTLP.
    kind: u64,
    /// Name of the parent; empty for the root.
    parent: &'static str,
    count: usize,
    /// Names of attributes, some with their text.
    attributes: &'static [&'static str],
}

/// Numbers of kinds by OTLP.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

const REQUEST: &str = "POST /v1/agents/{namespace}/{name}";
const TURN: &[&str] = &[
    "gen_ai.operation.name=invoke_agent",
    "gen_ai.agent.name",
    "gen_ai.agent.version=1f",
    "gen_ai.conversation.id",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "recif.tool_turns",
];
const CHAT: &[&str] = &[
    "gen_ai.operation.name=chat",
    "gen_ai.provider.name=openai",
    "gen_ai.request.model=gpt",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "server.address",
    "server.port",
];

/// Spans of a request for the agent `traced`, which calls its tools `ask` (the agent `other`) and `echo` (of an MCP server). Each
/// conversation is given a title by the model.
static RUN: [ExpectedSpans; 7] = [
    ExpectedSpans {
        name: REQUEST,
        kind: SERVER,
        parent: "",
        count: 1,
        attributes: &[
            "http.request.method=POST",
            "http.route=/v1/agents/{namespace}/{name}",
            "url.path",
            "url.scheme=http",
            "http.response.status_code",
            "user.id",
            "k8s.namespace.name",
            "recif.kind=Agent",
            "recif.name=traced",
            "recif.pod",
            "recif.queue_ms",
            "recif.retries",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
        ],
    },
    ExpectedSpans { name: "invoke_agent traced", kind: INTERNAL, parent: REQUEST, count: 1, attributes: TURN },
    ExpectedSpans { name: "chat gpt", kind: CLIENT, parent: "invoke_agent traced", count: 3, attributes: CHAT },
    ExpectedSpans {
        name: "execute_tool ask",
        kind: INTERNAL,
        parent: "invoke_agent traced",
        count: 1,
        attributes: &[
            "gen_ai.operation.name=execute_tool",
            "gen_ai.tool.name=ask",
            "gen_ai.tool.type=extension",
            "gen_ai.tool.call.id=outer-ask",
        ],
    },
    ExpectedSpans {
        name: "invoke_agent other",
        kind: INTERNAL,
        parent: "execute_tool ask",
        count: 1,
        attributes: TURN,
    },
    ExpectedSpans { name: "chat gpt", kind: CLIENT, parent: "invoke_agent other", count: 2, attributes: CHAT },
    ExpectedSpans {
        name: "execute_tool echo",
        kind: INTERNAL,
        parent: "invoke_agent traced",
        count: 1,
        attributes: &[
            "gen_ai.operation.name=execute_tool",
            "gen_ai.tool.name=echo",
            "gen_ai.tool.type=extension",
            "gen_ai.tool.call.id=outer-echo",
            "mcp.method.name=tools/call",
            "mcp.protocol.version=2025-06-18",
        ],
    },
];

/// Message upon which the model calls each tool. No answer repeats it.
const CALL_TOOLS: &str = r#"{"message": "ada outer tool 2 canary"}"#;

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

async fn where_content_is_captured_spans_hold_it_without_secrets(ns: Namespace) -> Result<()> {
    ns.start(&workload("collector", json!({}))).await?;
    provide_stub(&ns).await?;
    ns.apply(&secret("keys", json!({"key": "key-canary"}))).await?;
    let mut variables = exporter(&ns).to_vec();
    variables.push(("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true".to_owned()));
    let mut env = env_list(variables);
    let from = json!({"secretKeyRef": {"name": "keys", "key": "key"}});
    env.as_array_mut().context("no list")?.push(json!({"name": "KEY", "valueFrom": from}));
    ns.start(&agent("open", json!({"env": env}))).await?;
    crate::environment::has(&ns, "open", "RECIF_SECRET_VARIABLES", Some("KEY")).await?;

    let service = ClientTarget::service(&ns, "open").await?;
    let question = r#"{"message": "is key-canary the key"}"#;
    let answer = poll(START_TIMEOUT, "an answer", || async {
        Ok(Some(send_request(&ns, &service, "POST", "/chat?canary=query", question).await?))
    })
    .await?;
    ensure!(answer.status == 200 && answer.text.contains("echo: is key-canary the key"), "{answer:?}");

    let collector = ClientTarget::service(&ns, "collector").await?;
    let spans = poll(START_TIMEOUT, "the spans of the turn", || async {
        let kept = send_request(&ns, &collector, "GET", "/spans", "").await?;
        ensure!(kept.status == 200 && !kept.text.contains("canary"), "{kept:?}");
        let spans = spans(&serde_json::from_str(&kept.text)?);
        Ok(spans.iter().any(|span| span["name"] == "invoke_agent open").then_some(spans))
    })
    .await?;
    for name in ["invoke_agent open", "chat stub-echo"] {
        let span = spans.iter().find(|span| span["name"] == name).with_context(|| format!("{name}: {spans:?}"))?;
        let (asked, said) = (content(span, "gen_ai.input.messages")?, content(span, "gen_ai.output.messages")?);
        let text = |text: &str| json!([{"type": "text", "content": text}]);
        ensure!(asked == json!([{"role": "user", "parts": text("is *** the key")}]), "{name}: {asked}");
        let expected = json!([{"role": "assistant", "parts": text("echo: is *** the key"), "finish_reason": "stop"}]);
        ensure!(said == expected, "{name}: {said}");
    }
    Ok(())
}

/// Returns the JSON in an attribute of a span.
fn content(span: &Value, name: &str) -> Result<Value> {
    let mut attributes = span["attributes"].as_array().into_iter().flatten();
    let attribute = attributes.find(|attribute| attribute["key"] == name);
    let text = attribute.and_then(|attribute| attribute["value"]["stringValue"].as_str());
    Ok(serde_json::from_str(text.with_context(|| format!("{name} is missing: {span}"))?)?)
}

async fn a_request_through_the_gateway_is_one_trace_with_its_turn_and_the_tools_that_it_calls(
    ns: Namespace,
) -> Result<()> {
    for name in ["collector", "provider"] {
        ns.start(&workload(name, json!({}))).await?;
    }
    start_mcp_workload(&ns, "echo").await?;
    ns.apply(&remote(&ns, "remote", "", json!({}))).await?;
    await_available(&ns, "remote", 1).await?;
    let endpoint = format!("http://provider.{}.svc.cluster.local:8000/billing", ns.name);
    let plugin = json!({"type": "openai", "extraConfig": {"endpoint": endpoint}});
    ns.provide(&plugin_config("provider", plugin)).await?;
    let spec = json!({"provider": "openai", "model": "gpt", "pluginConfigRef": {"name": "provider"}});
    ns.provide(&object(MODEL, "gpt", spec)).await?;

    // The operator has no collector, so it tells no version.
    let mut env = exporter(&ns).to_vec();
    env.push(("OTEL_RESOURCE_ATTRIBUTES", "service.version=1f".to_owned()));
    let env = env_list(env);
    let fields = json!({"modelRef": {"name": "gpt"}, "env": env});
    ns.start(&agent("other", fields)).await?;
    ns.provide(&tool("ask", json!({"type": "agent", "agentRef": {"name": "other"}}))).await?;
    let servers = json!([{"name": "remote"}]);
    let fields = json!({"modelRef": {"name": "gpt"}, "env": env, "tools": ["ask"], "toolServers": servers});
    ns.start(&agent("traced", fields)).await?;

    let variables = exporter(&ns);
    set_gateway_env(&ns.env, &variables.each_ref().map(|(name, value)| format!("{name}={value}"))).await?;
    let traced = trace_through_gateway(&ns).await;
    set_gateway_env(&ns.env, &variables.map(|(name, _)| format!("{name}-"))).await?;
    traced
}

async fn trace_through_gateway(ns: &Namespace) -> Result<()> {
    let target = ClientTarget::gateway(ns, AGENT, "traced").await?;
    let answer = poll(START_TIMEOUT, "an answer through the gateway", || async {
        let answer = send_request(ns, &target, "POST", "/chat?canary=query", CALL_TOOLS).await?;
        ensure!(answer.status == 200 && answer.text.contains("w2"), "{answer:?}");
        Ok(Some(answer))
    })
    .await?;
    let run = answer.header("x-recif-run").context("no x-recif-run")?.to_owned();
    let collector = ClientTarget::service(ns, "collector").await?;
    let count: usize = RUN.iter().map(|expected| expected.count).sum();
    let spans = poll(START_TIMEOUT, "all spans of the request", || async {
        let kept = send_request(ns, &collector, "GET", "/spans", "").await?;
        ensure!(kept.status == 200 && !kept.text.contains("canary"), "{kept:?}");
        let mut spans = spans(&serde_json::from_str(&kept.text)?);
        spans.retain(|span| span["traceId"] == run.as_str());
        Ok((spans.len() >= count).then_some(spans))
    })
    .await?;
    check_run(&spans)
}

/// Checks that the spans of a trace are those of [`RUN`], each below its parent and with its attributes, and that none failed.
fn check_run(spans: &[Value]) -> Result<()> {
    let mut seen = vec![0; RUN.len()];
    for span in spans {
        let parent = parent_name(spans, span).with_context(|| format!("the parent is not there: {span}"))?;
        let place = RUN.iter().position(|it| span["name"] == it.name && parent == it.parent);
        let place = place.with_context(|| format!("no span of the run, below {parent:?}: {span}"))?;
        let expected = &RUN[place];
        seen[place] += 1;
        ensure!(span["kind"] == expected.kind, "{span}");
        for attribute in expected.attributes {
            ensure!(has_attribute(span, attribute), "{attribute} is missing: {span}");
        }
        ensure!(!has_attribute(span, "error.type"), "{span}");
    }
    for (expected, seen) in RUN.iter().zip(seen) {
        let ExpectedSpans { name, parent, count, .. } = expected;
        ensure!(seen == *count, "{seen} times {name:?} below {parent:?}: {spans:?}");
    }
    let request = spans.iter().find(|span| span["name"] == REQUEST).context("no span of the request")?;
    let mut events = request["events"].as_array().into_iter().flatten();
    ensure!(events.any(|event| event["name"] == "first_byte"), "{request}");
    Ok(())
}

/// Returns the name of the parent of a span, empty for a root; `None`: the parent is not among the spans.
fn parent_name<'a>(spans: &'a [Value], span: &Value) -> Option<&'a str> {
    let id = span["parentSpanId"].as_str().unwrap_or_default();
    if id.is_empty() {
        return Some("");
    }
    spans.iter().find(|other| other["spanId"] == id)?["name"].as_str()
}

/// Reports whether a span has an attribute: `name`, or `name=text`.
fn has_attribute(span: &Value, attribute: &str) -> bool {
    let (name, text) = attribute.split_once('=').map_or((attribute, None), |(name, text)| (name, Some(text)));
    let mut attributes = span["attributes"].as_array().into_iter().flatten();
    attributes.any(|it| it["key"] == name && text.is_none_or(|text| it["value"]["stringValue"] == text))
}

/// Sets variables of the gateway (`NAME=value`), or takes them away (`NAME-`), and waits until its new Pods alone serve.
async fn set_gateway_env(env: &Env, changes: &[String]) -> Result<()> {
    let deployment = format!("deployment/{}", gateway::NAME);
    let mut command = vec!["--namespace", operator::NAMESPACE, "set", "env", &deployment];
    command.extend(changes.iter().map(String::as_str));
    env.kubectl(&command).await?;
    gateway::ready(env, 0).await?;
    gateway::old_ones_gone(env).await
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
    env_list(exporter(ns).to_vec())
}

/// Returns the field `env` of an agent with these variables.
fn env_list(variables: Vec<(&'static str, String)>) -> Value {
    variables.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// Returns all spans of the requests that the collector has kept.
fn spans(kept: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let processes = list(kept).into_iter().flat_map(|request| list(&request["resourceSpans"]));
    let scopes = processes.flat_map(|process| list(&process["scopeSpans"]));
    scopes.flat_map(|scope| list(&scope["spans"])).collect()
}
