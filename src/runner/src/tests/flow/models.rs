//! Model of a prompt with its settings and credentials, and the responses to clients when it fails.

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::any,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};

use super::ContractFolder;

/// Request that the provider got: path, `Authorization`, body.
type RecordedCall = (String, String, Value);

/// Starts a provider with OpenAI's API. It says `hello`, or fails with a secret in the body for the model `broken`.
async fn provider() -> (String, mpsc::UnboundedReceiver<RecordedCall>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, asked) = mpsc::unbounded_channel();
    let routes = Router::new().fallback(any(serve_chunk)).with_state(sender);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, asked)
}

async fn serve_chunk(
    State(asked): State<mpsc::UnboundedSender<RecordedCall>>,
    uri: Uri,
    headers: HeaderMap,
    body: axum::Json<Value>,
) -> Response {
    let broken = body["model"] == "broken";
    let key = headers.get("authorization").map_or("", |value| value.to_str().unwrap()).to_owned();
    asked.send((uri.path().into(), key, body.0)).unwrap();
    if broken {
        return (StatusCode::BAD_REQUEST, "SECRET of the provider").into_response();
    }
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]});
    ([("content-type", "text/event-stream")], format!("data: {chunk}\n\ndata: [DONE]\n\n")).into_response()
}

fn contract(url: &str) -> ContractFolder {
    let config = json!({
        "defaultModel": {"provider": "acme", "model": "small", "config": {"temperature": 0.5, "topP": 0.25}},
        "plugin": {"type": "openai", "extraConfig": {"baseUrl": url}},
        "entrypoint": "main",
        "credentialsDir": "/genkit/credentials",
        "credentialKeys": ["OPENAI_API_KEY"],
    });
    ContractFolder::flow(&[
        ("main", "hi"),
        ("big", "---\nmodel: acme/org/big\nconfig:\n  temperature: 1\n---\nhi"),
        ("broken", "---\nmodel: broken\n---\nhi"),
    ])
    .with("config.json", &config.to_string())
}

#[tokio::test]
async fn a_prompt_asks_its_model_or_that_of_the_flow() {
    let (url, mut asked) = provider().await;
    let runner = contract(&url).with("credentials/OPENAI_API_KEY", "sk-1\n").serve(&[]).await;
    for (path, model, temperature) in [("/", "small", 0.5), ("/big", "org/big", 1.0)] {
        assert_eq!(runner.post(path, "").await, (200, "hello".into()));
        let (route, key, body) = asked.recv().await.unwrap();
        assert_eq!((route.as_str(), key.as_str()), ("/v1/chat/completions", "Bearer sk-1"));
        let settings = (&body["model"], body["temperature"].as_f64(), body["top_p"].as_f64());
        assert_eq!(settings, (&json!(model), Some(temperature), Some(0.25)), "{body}");
    }
}

#[tokio::test]
async fn a_provider_that_fails_is_a_502_without_its_body() {
    let (url, _asked) = provider().await;
    let runner = contract(&url).with("credentials/OPENAI_API_KEY", "sk-1").serve(&[]).await;
    let (status, text) = runner.refused("/broken", "").await;
    assert!(status == 502 && text.starts_with("the model did not answer: "), "{text}");
    assert!(!text.contains("SECRET") && !text.contains("sk-1"), "{text}");
    let stream = runner.client.post(runner.url("/broken")).header("accept", "text/event-stream").send().await.unwrap();
    let events = stream.text().await.unwrap();
    assert!(events.contains("event: error") && !events.contains("SECRET"), "{events}");
}

#[tokio::test]
async fn a_model_that_cannot_be_opened_is_said_once_and_before_anything_is_served() {
    let contract = ContractFolder::flow(&[("main", "hi"), ("other", "ho")]).with(
        "config.json",
        "{\n\"defaultModel\": {\"provider\": \"openai\", \"model\": \"m\"},\n\"plugin\": {\"type\": \"openai\"},\n\"entrypoint\": \"main\"\n}",
    );
    let (status, why) = contract.serve(&[]).await.refused("/", "").await;
    assert!(status == 503 && why.starts_with("config.json:3: ") && why.contains("OPENAI_API_KEY"), "{why}");
    assert_eq!(why.matches("config.json").count(), 1, "{why}");
    assert_eq!(contract.serve(&[("OPENAI_API_KEY", "k")]).await.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn a_secret_of_the_model_does_not_replace_the_egress_list() {
    let contract = contract("https://far.example/v1")
        .with("credentials/OPENAI_API_KEY", "sk-1")
        .with("credentials/RECIF_EGRESS", r#"{"listed": ["far.example:443"]}"#);
    let (status, why) = contract.serve(&[("RECIF_EGRESS", "{}")]).await.refused("/", "").await;
    assert!(status == 503 && why.contains("host far.example is not in the egress list of this agent"), "{why}");
    let listed = contract.serve(&[("RECIF_EGRESS", r#"{"own": ["far.example:443"]}"#)]).await;
    assert_eq!(listed.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn a_model_may_be_named_with_its_provider_under_any_of_its_names() {
    let config = super::CONFIG.replace("\"type\": \"stub\"", "\"type\": \"gemini\"").replace("stub", "acme");
    for (model, problem) in [
        ("acme/pro", None),
        ("gemini/pro", None),
        ("googleai/pro", None),
        ("pro", None),
        ("publishers/google/pro", None),
        ("openai/pro", Some("prompts/main.prompt:2: the flow has a plugin for gemini, not for openai")),
    ] {
        let contract =
            ContractFolder::flow(&[("main", &format!("---\nmodel: {model}\n---\nhi"))]).with("config.json", &config);
        let (_, ready) = contract.serve(&[("GEMINI_API_KEY", "k")]).await.get("/readyz").await;
        let ready: Value = serde_json::from_str(&ready).unwrap();
        assert_eq!(ready["error"].as_str(), problem, "{model}: {ready}");
    }
}
