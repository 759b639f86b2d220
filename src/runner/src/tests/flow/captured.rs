//! Where content is captured, spans of a flow hold its prompt and answer, and nothing of its credentials.

use std::sync::Mutex;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::json;
use telemetry::otlp::{self, Span};
use tokio::net::TcpListener;

use super::*;

/// Spans that a collector has received.
type ReceivedSpans = Arc<Mutex<Vec<Span>>>;

async fn collect(State(spans): State<ReceivedSpans>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let body = otlp::gunzip(&body, 1 << 20).unwrap();
    let request = otlp::decode_traces(headers["content-type"].to_str().unwrap(), &body).unwrap();
    let scopes = request.resource_spans.into_iter().flat_map(|process| process.scope_spans);
    spans.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
    StatusCode::OK
}

#[tokio::test]
async fn spans_of_a_flow_hold_its_prompt_and_answer_and_no_credential() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let spans = ReceivedSpans::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new().route("/v1/traces", post(collect)).with_state(spans.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let credentials = r#""credentialsDir": "credentials", "credentialKeys": ["OTHER"], "entrypoint""#;
    let folder = ContractFolder::flow(&[("main", "tell {{text}}")])
        .with("config.json", &CONFIG.replace(r#""entrypoint""#, credentials))
        .with("credentials/OTHER", "key-of-file\n");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
    ];
    let runner = folder.serve(&variables).await;
    let answer = runner.post("/", r#"{"text": "key-of-file"}"#).await;
    assert_eq!(answer, (200, "echo: tell key-of-file".to_owned()));

    let arrived = async {
        loop {
            let turn = spans.lock().unwrap().iter().find(|span| span.name.starts_with("invoke_agent ")).cloned();
            match turn {
                Some(turn) => break turn,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let turn = tokio::time::timeout(Duration::from_secs(20), arrived).await.unwrap();
    let content = |name: &str| -> Value {
        serde_json::from_str(otlp::text_attribute(&turn.attributes, name).unwrap_or_default()).unwrap_or_default()
    };
    let part = |text: &str| json!([{ "type": "text", "content": text }]);
    assert_eq!(content("gen_ai.input.messages"), json!([{ "role": "user", "parts": part("tell ***") }]));
    let said = json!([{ "role": "assistant", "parts": part("echo: tell ***"), "finish_reason": "stop" }]);
    assert_eq!(content("gen_ai.output.messages"), said);
    assert!(!format!("{:?}", spans.lock().unwrap()).contains("key-of-file"));
}
