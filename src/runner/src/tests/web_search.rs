//! The builtin tool `web_search`, against a server that answers as SearXNG does.

use std::{collections::HashMap, future::pending, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::Query,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::Runner;
use crate::{
    agent::Agent,
    config::RunnerConfig,
    metrics::RunnerMetrics,
    models::{self, Http, ModelRef},
    server::AgentApp,
    tools::{CallableTool, Toolbox},
};

/// Starts a search service. It answers in JSON only where that is asked for, as SearXNG does.
async fn search_service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let search = |Query(query): Query<HashMap<String, String>>| async move {
        match (query["q"].as_str(), query.get("format").map(String::as_str)) {
            ("closed", _) => StatusCode::FORBIDDEN.into_response(),
            ("page", _) | (_, None) => "<html>".into_response(),
            ("long", _) => answer(&"x".repeat(1 << 20)),
            (q, _) => answer(q),
        }
    };
    let routes = Router::new().route("/searx/search", get(search));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

fn answer(query: &str) -> Response {
    let result = json!({
        "url": "https://a.example/", "title": format!("About {query}"), "content": "A text.", "engine": "duckduckgo",
        "parsed_url": ["https", "a.example", "/", "", "", ""], "template": "default.html", "engines": ["duckduckgo"],
        "positions": [1], "score": 1.0, "category": "general", "publishedDate": null,
    });
    Json(json!({
        "query": query, "number_of_results": 0, "results": [result], "answers": [], "corrections": [],
        "infoboxes": [], "suggestions": [], "unresponsive_engines": [],
    }))
    .into_response()
}

/// Starts an agent with the tool, whose environment has this search service.
async fn agent(service: Option<String>) -> Runner {
    let environment = move |name: &str| service.clone().filter(|_| name == "SEARXNG_URL");
    let metrics = RunnerMetrics::default();
    let tools = json!([{"name": "web_search", "type": "builtin"}, {"name": "datetime", "type": "builtin"}]);
    let tools = CallableTool::read_all(&tools.to_string()).unwrap();
    let tools = Toolbox::new(tools, Arc::new(environment), metrics.clone());
    let model = models::open(&ModelRef::new("stub", "stub-echo"), &|_: &str| None, &Http::default()).unwrap();
    let app = AgentApp {
        name: "tester".into(),
        namespace: "shop".into(),
        card: Arc::default(),
        agent: Ok(Arc::new(Agent::with(model.clone(), model, None, tools))),
        metrics,
        requests: TaskTracker::new(),
    };
    Runner::start(app, pending(), Duration::ZERO).await
}

#[tokio::test]
async fn the_configured_service_is_asked_and_the_model_gets_its_results() {
    let runner = agent(Some(format!("http://{}/searx", search_service().await))).await;
    let reply = runner.say(r#"/tool web_search {"query": "a & b"}"#).await;
    assert_eq!(reply, "1. About a & b\nhttps://a.example/\nA text.");
    for (query, error) in [
        ("closed", "HTTP 403 Forbidden"),
        ("page", "the search service did not answer with JSON: allow `json`"),
        ("long", "the search service answered with more than 1 MiB"),
        (" ", "wrong arguments: `query` is empty"),
    ] {
        let reply = runner.say(format!(r#"/tool web_search {{"query": "{query}"}}"#)).await;
        assert!(reply.starts_with(&format!("tool web_search failed: {error}")), "{query}: {reply}");
    }
}

#[tokio::test]
async fn without_a_service_the_tool_is_not_offered() {
    let with = agent(Some("http://127.0.0.1:1".into())).await.say("/tools").await;
    let without = agent(None).await.say("/tools").await;
    assert!(with.contains("web_search") && with.contains("datetime"), "{with}");
    assert!(!without.contains("web_search") && without.contains("datetime"), "{without}");
}

#[test]
fn an_address_that_is_none_is_refused_before_anything_is_served() {
    for value in ["searxng:8080", "ftp://a", "nonsense"] {
        let error =
            RunnerConfig::read(&move |name: &str| (name == "SEARXNG_URL").then(|| value.to_owned())).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("SEARXNG_URL is refused") && text.contains("http://searxng:8080"), "{text}");
    }
}
