//! Models of an agent that stand in for each other: what a client sees of it.

use axum::{Router, http::StatusCode, routing::any};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Runner;

/// Starts a provider that answers 503 to every request, and returns its URL.
async fn unavailable() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let routes = Router::new().fallback(any(async || StatusCode::SERVICE_UNAVAILABLE));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}

/// Returns the variables of an agent whose first model is at `url`, and whose fallback is the stub.
fn variables(url: String) -> Vec<(&'static str, String)> {
    let stub = json!([{"model": {"provider": "s", "model": "echo"}, "plugin": {"type": "stub"}}]);
    vec![
        ("CORAIL_MODEL_TYPE", "openai".into()),
        ("CORAIL_MODEL_ID", "gpt".into()),
        ("CORAIL_MODEL_BASE_URL", url),
        ("CORAIL_MODEL_FALLBACKS", stub.to_string()),
    ]
}

#[tokio::test]
async fn header_and_last_event_say_which_model_answers() {
    let runner = Runner::with(&variables(unavailable().await)).await;
    for accept in ["application/json", "text/event-stream"] {
        let request = runner.client.post(runner.url("/chat")).header("accept", accept);
        let response = request.body(json!({"message": "hi"}).to_string()).send().await.unwrap();
        assert_eq!(response.headers()["x-recif-model"], "stub/echo", "{accept}");
        assert_eq!(response.headers()["x-recif-model-failure"], "HTTP 503", "{accept}");
        let text = response.text().await.unwrap();
        assert!(text.contains("echo: "), "{text}");
        assert_eq!(
            text.contains(r#""models":["stub/echo"],"fallback":true"#)
                || text.contains(r#""fallback":true,"models":["stub/echo"]"#),
            accept != "application/json",
            "{text}"
        );
    }
    let body = json!({"model": "agent", "messages": [{"role": "user", "content": "hi"}]});
    let models = runner.client.get(runner.url("/v1/models")).send().await.unwrap().text().await.unwrap();
    let models: Value = serde_json::from_str(&models).unwrap();
    for stream in [false, true] {
        let mut body = body.clone();
        (body["model"], body["stream"]) = (models["data"][0]["id"].clone(), stream.into());
        let request = runner.client.post(runner.url("/v1/chat/completions")).body(body.to_string());
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["x-recif-model"], "stub/echo", "{stream}");
    }
}

#[tokio::test]
async fn the_only_model_is_named_without_a_wait() {
    let runner = Runner::with(&[]).await;
    let (_, last) = runner.events("hi").await.pop().unwrap();
    assert_eq!((&last["models"], &last["fallback"]), (&json!(["stub/stub-echo"]), &Value::Null));
    let request = runner.client.post(runner.url("/chat")).header("accept", "text/event-stream");
    let response = request.body(json!({"message": "hi"}).to_string()).send().await.unwrap();
    assert_eq!(response.headers()["x-recif-model"], "stub/stub-echo");
    assert!(!response.headers().contains_key("x-recif-model-failure"));
}

#[tokio::test]
async fn without_the_callers_key_the_answer_is_401() {
    let mut variables = variables(unavailable().await);
    variables.push(("CORAIL_MODEL_PASSTHROUGH", "true".into()));
    let runner = Runner::with(&variables).await;
    for accept in ["application/json", "text/event-stream"] {
        let chat = || {
            let request = runner.client.post(runner.url("/chat")).header("accept", accept);
            request.body(json!({"message": "hi"}).to_string())
        };
        let response = chat().send().await.unwrap();
        assert_eq!(response.status(), 401, "{accept}");
        let text = response.text().await.unwrap();
        assert!(text.contains("the model needs your key: send it as Authorization"), "{text}");
        let response = chat().header("authorization", "Bearer k").send().await.unwrap();
        assert_eq!(response.status(), 200, "{accept}");
    }
    for method in ["message/send", "message/stream"] {
        let message = json!({"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}});
        let response = runner.client.post(runner.url("/")).body(call.to_string()).send().await.unwrap();
        assert_eq!(response.status(), 401, "{method}");
        let text = response.text().await.unwrap();
        assert!(text.contains("the model needs your key: send it as Authorization"), "{text}");
    }
}
