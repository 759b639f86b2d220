//! Tools of flows: selection by the prompt, and failures as results for the model.

use std::convert::Infallible;
use std::future::pending;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::any;
use futures::stream;
use tokio::net::TcpListener;

use super::ContractFolder;
use crate::tests::forwarded::{CANARY, witnesses};

/// Creates tools that never respond, return 1 GiB, and return invalid JSON, with prompts that call them.
async fn contract() -> ContractFolder {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let chunk = Bytes::from(vec![b'a'; 1 << 20]);
    let gibibyte = move || async move {
        Body::from_stream(stream::iter((0..1024).map(move |_| Ok::<_, Infallible>(chunk.clone()))))
    };
    let routes = Router::new()
        .route("/hangs", any(pending::<()>))
        .route("/huge", any(gibibyte))
        .route("/text", any(|| async { "<not json>" }));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    ["hangs", "huge", "text"].iter().fold(
        ContractFolder::flow(&[
            ("main", "/tool {{tool}}"),
            ("list", "---\ntools: [text]\n---\n/tools"),
            ("all", "/tools"),
            ("none", "---\ntools: []\n---\n/tool text"),
            ("one", "---\ntools: [text]\n---\n/tool huge"),
        ]),
        |contract, name| contract.with_tool("", name, &format!("{at}/{name}")),
    )
}

#[tokio::test]
async fn a_tool_that_answers_badly_is_the_models_business() {
    let contract = contract().await;
    let runner = contract.serve(&[]).await;
    assert_eq!(runner.post("/", r#"{"tool": "text"}"#).await, (200, "<not json>".into()));
    let (status, answer) = runner.post("/", r#"{"tool": "huge"}"#).await;
    assert!(status == 200 && answer.ends_with("\n[truncated after 1 MiB]"));
    assert!(answer.len() < (1 << 20) + 100);
    assert_eq!(
        runner.post("/", r#"{"tool": "none"}"#).await,
        (200, "tool none failed: unknown tool `none`; known tools: hangs, huge, text".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_given_up() {
    let contract = contract().await;
    let runner = contract.serve(&[]).await;
    assert_eq!(
        runner.post("/", r#"{"tool": "hangs"}"#).await,
        (200, "tool hangs failed: no answer within 30 s".into())
    );
}

#[tokio::test]
async fn a_prompt_has_the_tools_it_names_or_all() {
    let contract = contract().await;
    let runner = contract.serve(&[]).await;
    assert_eq!(runner.post("/list", "").await, (200, "text: d".into()));
    assert_eq!(runner.post("/all", "").await, (200, "hangs: d\nhuge: d\ntext: d".into()));
    assert_eq!(
        runner.post("/none", "").await,
        (200, "tool text failed: unknown tool `text`; known tools: none".into())
    );
    assert_eq!(runner.post("/one", "").await, (200, "tool huge failed: unknown tool `huge`; known tools: text".into()));
}

#[tokio::test]
async fn a_tool_has_the_headers_of_the_caller_that_it_names() {
    let url = format!("{}/shop", witnesses().await);
    let tool = serde_json::json!({
        "name": "shop", "description": "d", "implementation": {"flow": {"url": url, "forwardHeaders": ["X-Tenant"]}},
    });
    let contract = ContractFolder::flow(&[("main", "/tool shop")]).with("tools/shop.json", &tool.to_string());
    let runner = contract.serve(&[]).await;
    for accept in ["text/plain", "text/event-stream"] {
        let request = runner.client.post(runner.url("/")).header("x-tenant", CANARY).header("accept", accept);
        let answer = request.send().await.unwrap().text().await.unwrap();
        // Each word of a stream is an event of its own.
        assert!(answer.contains("tenant") && !answer.contains("no "), "{accept}: {answer}");
    }
    assert_eq!(runner.post("/", "").await, (200, "no tenant and nothing".into()));
}

#[tokio::test]
async fn a_tool_that_a_person_has_to_approve_is_refused_by_a_flow() {
    let tool = serde_json::json!({
        "name": "pay", "description": "d", "inputSchema": {"type": "object"}, "approval": {"when": "Always"},
        "implementation": {"http": {"url": "http://127.0.0.1:1/", "method": "POST"}},
    });
    let contract = ContractFolder::flow(&[("main", "/tool pay")]).with("tools/pay.json", &tool.to_string());
    let runner = contract.serve(&[]).await;
    let (status, answer) = runner.post("/", "{}").await;
    assert!(status == 200 && answer.starts_with("tool pay failed: refused: a person has to approve"), "{answer}");
}
