//! One turn is one trace, and no span holds what was said.

use std::collections::BTreeMap;
use std::sync::Mutex;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use telemetry::otlp::{self, KeyValue, Span, any_value, span, status};

use super::*;

/// Trace and span of the client.
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Everything that the agent asks: model, tools, collector.
#[derive(Default)]
struct World {
    spans: Mutex<Vec<Span>>,
    /// Headers `traceparent` and `tracestate` of each request, by what was asked.
    contexts: Mutex<BTreeMap<&'static str, (String, String)>>,
    /// `_meta` of the call of an MCP tool.
    meta: Mutex<Value>,
    model_requests: Mutex<usize>,
}

impl World {
    fn saw(&self, what: &'static str, headers: &HeaderMap) {
        let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        self.contexts.lock().unwrap().insert(what, (header("traceparent"), header("tracestate")));
    }

    fn context(&self, what: &str) -> (String, String) {
        self.contexts.lock().unwrap().get(what).cloned().unwrap_or_default()
    }

    /// Starts the servers.
    async fn start() -> (Arc<Self>, String) {
        let world = Arc::new(Self::default());
        let routes = Router::new()
            .route("/v1/traces", post(collect))
            .route("/v1/chat/completions", post(answer))
            .route("/lookup", get(lookup))
            .route("/agent/chat", post(colleague))
            .route("/mcp", any(mcp_server))
            .with_state(world.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (world, url)
    }

    /// Waits until there are so many spans, and returns them by name.
    async fn spans(&self, count: usize) -> BTreeMap<String, Vec<Span>> {
        let arrived = async {
            while self.spans.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), arrived).await.is_ok();
        let mut spans: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for span in self.spans.lock().unwrap().iter() {
            spans.entry(span.name.clone()).or_default().push(span.clone());
        }
        assert!(in_time, "{:?}", spans.keys());
        spans
    }
}

async fn collect(State(world): State<Arc<World>>, headers: HeaderMap, body: axum::body::Bytes) -> StatusCode {
    let body = otlp::gunzip(&body, 1 << 20).unwrap();
    let request = otlp::decode_traces(headers["content-type"].to_str().unwrap(), &body).unwrap();
    for process in request.resource_spans {
        let attributes = process.resource.unwrap().attributes;
        assert_eq!(otlp::text_attribute(&attributes, "service.name"), Some("assistant"));
        assert_eq!(otlp::text_attribute(&attributes, "recif.kind"), Some("Agent"));
        world.spans.lock().unwrap().extend(process.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    StatusCode::OK
}

/// Model that calls three tools, then answers; the first request is refused for now.
async fn answer(State(world): State<Arc<World>>, headers: HeaderMap, body: String) -> Response {
    world.saw("model", &headers);
    let number = {
        let mut requests = world.model_requests.lock().unwrap();
        *requests += 1;
        *requests
    };
    if number == 1 {
        return (StatusCode::SERVICE_UNAVAILABLE, [("retry-after-ms", "1")]).into_response();
    }
    let body: Value = serde_json::from_str(&body).unwrap();
    let is_answered = body["messages"].as_array().unwrap().iter().any(|message| message["role"] == "tool");
    let call = |index: usize, name: &str, arguments: Value| {
        json!({ "index": index, "id": format!("call_{name}"), "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() } })
    };
    let (delta, reason) = if is_answered || body["tools"].is_null() {
        (json!({ "content": "CANARY-answer" }), "stop")
    } else {
        let calls = json!([
            call(0, "lookup", json!({ "id": "CANARY-argument" })),
            call(1, "remote", json!({})),
            call(2, "colleague", json!({ "message": "CANARY-question" })),
        ]);
        (json!({ "tool_calls": calls }), "tool_calls")
    };
    let text = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 5, "completion_tokens": 2 } });
    ([(CONTENT_TYPE, "text/event-stream")], format!("data: {text}\n\ndata: {usage}\n\ndata: [DONE]\n\n"))
        .into_response()
}

async fn lookup(State(world): State<Arc<World>>, headers: HeaderMap) -> String {
    world.saw("lookup", &headers);
    let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
    format!("CANARY-result {} {}", header("x-key"), header("x-variable"))
}

async fn colleague(State(world): State<Arc<World>>, headers: HeaderMap) -> &'static str {
    world.saw("colleague", &headers);
    r#"{"reply": "CANARY-reply", "conversation_id": "x"}"#
}

async fn mcp_server(State(world): State<Arc<World>>, headers: HeaderMap, body: String) -> Response {
    let request: Value = serde_json::from_str(&body).unwrap_or_default();
    let result = match request["method"].as_str() {
        Some("initialize") => {
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": { "name": "n", "version": "1" } })
        }
        Some("tools/call") => {
            world.saw("remote", &headers);
            *world.meta.lock().unwrap() = request["params"]["_meta"].clone();
            json!({ "content": [{ "type": "text", "text": "CANARY-mcp" }] })
        }
        Some("server/discover") => return StatusCode::BAD_REQUEST.into_response(),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}

/// Returns the variables of an agent whose model and tools are at `url`.
fn variables(url: &str) -> Vec<(&'static str, String)> {
    let id = json!([{ "name": "id", "type": "string" }]);
    let tools = json!([
        { "name": "lookup", "type": "http", "method": "GET", "endpoint": format!("{url}/lookup"), "parameters": id,
          "headers": { "x-key": "CANARY-header", "x-variable": "Bearer $TOOL_LOOKUP_KEY" } },
        { "name": "remote", "type": "mcp", "mcpEndpoint": format!("{url}/mcp") },
        { "name": "colleague", "type": "agent", "endpoint": format!("{url}/agent") },
    ]);
    vec![
        ("CORAIL_AGENT_NAME", "assistant".into()),
        ("CORAIL_MODEL_TYPE", "openai".into()),
        ("CORAIL_MODEL_ID", "gpt".into()),
        ("CORAIL_MODEL_BASE_URL", format!("{url}/v1")),
        ("CORAIL_MODEL_CONFIG", json!({ "temperature": 0.5 }).to_string()),
        ("CORAIL_SYSTEM_PROMPT", "CANARY-environment".into()),
        ("OPENAI_API_KEY", "CANARY-model-key".into()),
        ("TOOL_LOOKUP_KEY", "CANARY-variable".into()),
        ("CORAIL_TOOLS", tools.to_string()),
    ]
}

fn traced(url: &str) -> Vec<(&'static str, String)> {
    let mut variables = variables(url);
    variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", url.to_owned()));
    variables.push(("OTEL_BSP_SCHEDULE_DELAY", "10".into()));
    variables.push(("OTEL_RESOURCE_ATTRIBUTES", "service.version=1f,service.name=theirs".into()));
    variables
}

fn header_of(span: &Span) -> String {
    format!("00-{TRACE}-{}-01", hex::encode(&span.span_id))
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> &'a str {
    otlp::text_attribute(attributes, name).unwrap_or_default()
}

fn number(attributes: &[KeyValue], name: &str) -> Option<i64> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value {
        Some(any_value::Value::IntValue(number)) => Some(number),
        _ => None,
    }
}

#[tokio::test]
async fn a_turn_with_its_models_and_tools_is_one_trace_without_what_was_said() {
    let (world, url) = World::start().await;
    let runner = Runner::with(&traced(&url)).await;
    let request = runner.client.post(runner.url("/chat?q=CANARY-query")).header("traceparent", PARENT);
    let request = request.header("tracestate", "vendor=1").header("x-secret", "CANARY-request");
    let response = request.body(json!({ "message": "CANARY-prompt" }).to_string()).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-recif-run"], TRACE);
    let spans = world.spans(7).await;
    assert!(!format!("{spans:?}").contains("CANARY"), "{spans:?}");

    let [turn] = &spans["invoke_agent assistant"][..] else { panic!("{spans:?}") };
    assert_eq!((hex::encode(&turn.trace_id).as_str(), turn.kind()), (TRACE, span::SpanKind::Internal));
    assert_eq!(hex::encode(&turn.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(text(&turn.attributes, "gen_ai.agent.version"), "1f");
    assert_eq!(number(&turn.attributes, "recif.tool_turns"), Some(1));
    assert_eq!(number(&turn.attributes, "gen_ai.usage.input_tokens"), Some(10));
    assert!(!text(&turn.attributes, "gen_ai.conversation.id").is_empty());

    let chats = &spans["chat gpt"];
    assert_eq!(chats.len(), 3, "two of the turn, and the title");
    for chat in chats {
        assert_eq!((&chat.parent_span_id, &chat.trace_id), (&turn.span_id, &turn.trace_id));
        assert_eq!((chat.kind(), chat.trace_state.as_str()), (span::SpanKind::Client, "vendor=1"));
        assert_eq!(text(&chat.attributes, "gen_ai.provider.name"), "openai");
        assert_eq!(text(&chat.attributes, "gen_ai.request.model"), "gpt");
        assert_eq!(text(&chat.attributes, "server.address"), "127.0.0.1");
        assert_eq!(number(&chat.attributes, "gen_ai.usage.output_tokens"), Some(2));
        assert_eq!(chat.status.as_ref().unwrap().code(), status::StatusCode::Unset);
    }
    let retries: Vec<_> = chats.iter().flat_map(|chat| &chat.events).collect();
    let [retry] = &retries[..] else { panic!("{retries:?}") };
    assert_eq!((retry.name.as_str(), text(&retry.attributes, "error.type")), ("recif.retry", "503"));
    assert!(chats.iter().any(|chat| header_of(chat) == world.context("model").0), "its server gets the context");

    for (tool, kind) in [("lookup", "extension"), ("remote", "extension"), ("colleague", "extension")] {
        let [call] = &spans[&format!("execute_tool {tool}")][..] else { panic!("{spans:?}") };
        assert_eq!((&call.parent_span_id, call.kind()), (&turn.span_id, span::SpanKind::Internal));
        assert_eq!(text(&call.attributes, "gen_ai.tool.name"), tool);
        assert_eq!(text(&call.attributes, "gen_ai.tool.type"), kind);
        assert_eq!(text(&call.attributes, "gen_ai.tool.call.id"), format!("call_{tool}"));
        assert_eq!(world.context(tool), (header_of(call), "vendor=1".to_owned()), "{tool}");
    }
    let [call] = &spans["execute_tool remote"][..] else { panic!("{spans:?}") };
    assert_eq!(text(&call.attributes, "mcp.method.name"), "tools/call");
    assert_eq!(text(&call.attributes, "mcp.protocol.version"), "2025-06-18");
    let meta = world.meta.lock().unwrap().clone();
    assert_eq!((&meta["traceparent"], &meta["tracestate"]), (&json!(header_of(call)), &json!("vendor=1")));
    let counted = async {
        while !runner.get("/metrics").await.1.contains("recif_spans_total{outcome=\"sent\"} 7") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), counted).await.unwrap();
}

/// Returns an attribute that holds JSON.
fn content(span: &Span, name: &str) -> Value {
    serde_json::from_str(text(&span.attributes, name)).unwrap_or_default()
}

#[tokio::test]
async fn where_content_is_captured_spans_hold_prompt_and_answers_and_no_secret() {
    let (world, url) = World::start().await;
    let mut variables = traced(&url);
    variables.push(("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true".into()));
    let runner = Runner::with(&variables).await;
    let request = runner.client.post(runner.url("/chat?q=CANARY-query")).header("x-secret", "CANARY-request");
    let message = "CANARY-prompt CANARY-header CANARY-variable CANARY-model-key CANARY-request";
    let response = request.body(json!({ "message": message }).to_string()).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let spans = world.spans(7).await;
    let all = format!("{spans:?}");
    for secret in ["CANARY-header", "CANARY-variable", "CANARY-model-key", "CANARY-request", "CANARY-query"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }

    let part = |text: &str| json!({ "type": "text", "content": text });
    let asked = json!([{ "role": "user", "parts": [part("CANARY-prompt *** *** *** ***")] }]);
    let answer = json!([{ "role": "assistant", "parts": [part("CANARY-answer")], "finish_reason": "stop" }]);
    let [turn] = &spans["invoke_agent assistant"][..] else { panic!("{spans:?}") };
    assert_eq!(content(turn, "gen_ai.input.messages"), asked);
    assert_eq!(content(turn, "gen_ai.output.messages"), answer);
    assert_eq!(content(turn, "gen_ai.system_instructions"), json!([part("CANARY-environment")]));
    let tools = content(turn, "gen_ai.tool.definitions");
    let names: Vec<_> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lookup", "remote", "colleague"]);

    let chats = &spans["chat gpt"];
    let output = |chat: &Span| content(chat, "gen_ai.output.messages")[0].clone();
    let calling = chats.iter().find(|chat| output(chat)["finish_reason"] == "tool_call").unwrap();
    assert_eq!(content(calling, "gen_ai.input.messages"), asked);
    let call =
        json!({ "type": "tool_call", "id": "call_lookup", "name": "lookup", "arguments": { "id": "CANARY-argument" } });
    assert_eq!(output(calling)["parts"][0], call);
    let last = chats.iter().find(|chat| content(chat, "gen_ai.input.messages").as_array().unwrap().len() > 1).unwrap();
    let last = content(last, "gen_ai.input.messages");
    let result = "CANARY-result *** ***";
    assert_eq!(last[2]["parts"][0], json!({ "type": "tool_call_response", "id": "call_lookup", "response": result }));

    let [tool] = &spans["execute_tool lookup"][..] else { panic!("{spans:?}") };
    assert_eq!(content(tool, "gen_ai.tool.call.arguments"), json!({ "id": "CANARY-argument" }));
    assert_eq!(text(&tool.attributes, "gen_ai.tool.call.result"), result);
}

#[tokio::test]
async fn the_answer_of_a_turn_that_waits_shows_the_calls() {
    let (world, url) = World::start().await;
    let mut variables = traced(&url);
    variables.retain(|(name, _)| !name.starts_with("CORAIL_MODEL_") && *name != "CORAIL_TOOLS");
    let approval = json!({ "when": "Always", "by": "Caller", "timeout": 60 });
    let endpoint = format!("{url}/lookup");
    let tool = json!({ "name": "lookup", "type": "http", "method": "GET", "endpoint": endpoint, "approval": approval });
    variables.push(("CORAIL_TOOLS", json!([tool]).to_string()));
    variables.push(("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true".into()));
    let (status, reply) = Runner::with(&variables).await.chat_as("ada", "/tool lookup {}").await;
    assert_eq!(status, 202, "{reply}");
    let spans = world.spans(2).await;
    let call = json!({ "type": "tool_call", "id": "call_1", "name": "lookup", "arguments": {} });
    let answer = json!([{ "role": "assistant", "parts": [call], "finish_reason": "tool_call" }]);
    for span in spans.values().flatten() {
        assert_eq!(content(span, "gen_ai.output.messages"), answer, "{}", span.name);
        let events: Vec<_> = span
            .events
            .iter()
            .map(|event| (event.name.as_str(), text(&event.attributes, "gen_ai.tool.name")))
            .collect();
        let is_turn = span.name.starts_with("invoke_agent ");
        assert_eq!(events, if is_turn { vec![("recif.parked", "lookup")] } else { Vec::new() }, "{}", span.name);
    }
}

#[tokio::test]
async fn without_a_collector_a_context_is_passed_on_and_none_begins() {
    let (world, url) = World::start().await;
    let runner = Runner::with(&variables(&url)).await;
    let ask = |parent: Option<&'static str>| {
        let request = runner.client.post(runner.url("/chat")).body(json!({ "message": "hi" }).to_string());
        match parent {
            None => request,
            Some(parent) => request.header("traceparent", parent),
        }
    };
    let response = ask(None).send().await.unwrap();
    assert!(response.status() == 200 && !response.headers().contains_key("x-recif-run"));
    for what in ["model", "lookup", "remote", "colleague"] {
        assert_eq!(world.context(what).0, "", "{what}");
    }
    assert!(world.meta.lock().unwrap()["traceparent"].is_null());
    let response = ask(Some(PARENT)).send().await.unwrap();
    assert_eq!(response.headers()["x-recif-run"], TRACE);
    for what in ["model", "lookup", "remote", "colleague"] {
        assert_eq!(world.context(what).0, PARENT, "{what}");
    }
    assert_eq!(world.meta.lock().unwrap()["traceparent"], PARENT);
    assert!(world.spans.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_trace_that_is_not_sampled_is_passed_on_and_not_recorded() {
    let (world, url) = World::start().await;
    let runner = Runner::with(&traced(&url)).await;
    let request = runner.client.post(runner.url("/chat")).header("traceparent", PARENT.replace("b7-01", "b7-00"));
    let response = request.body(json!({ "message": "hi" }).to_string()).send().await.unwrap();
    assert_eq!(response.headers()["x-recif-run"], TRACE);
    let (parent, _) = world.context("lookup");
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(world.spans.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_task_is_a_span_of_the_server_around_its_turn() {
    let (world, url) = World::start().await;
    let runner = Runner::with(&traced(&url)).await;
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message } });
    let response = runner.client.post(runner.url("/")).body(body.to_string()).send().await.unwrap();
    let run = response.headers()["x-recif-run"].to_str().unwrap().to_owned();
    let spans = world.spans(8).await;
    let ([task], [turn]) = (&spans["SendMessage"][..], &spans["invoke_agent assistant"][..]) else {
        panic!("{spans:?}")
    };
    assert_eq!((hex::encode(&task.trace_id), task.kind()), (run, span::SpanKind::Server));
    assert!(task.parent_span_id.is_empty(), "the trace begins here");
    assert_eq!((&turn.parent_span_id, &turn.trace_id), (&task.span_id, &task.trace_id));
    assert_eq!(text(&task.attributes, "a2a.task.state"), "TASK_STATE_COMPLETED");
    assert!(!text(&task.attributes, "a2a.task.id").is_empty());
}

#[test]
fn a_variable_of_the_standard_that_is_refused_ends_the_process() {
    let lookup = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://collector:4317".to_owned()),
        "OTEL_EXPORTER_OTLP_PROTOCOL" => Some("grpc".to_owned()),
        _ => None,
    };
    let error = RunnerConfig::read(&lookup).unwrap_err().to_string();
    assert_eq!(error, "OTEL_EXPORTER_OTLP_PROTOCOL: grpc is not spoken: use the collector's HTTP port, usually 4318");
}
