//! Knowledge bases in a real PostgreSQL with pgvector, with a fake Ollama server.

use std::future::pending;

use axum::{
    Json, Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use crds::usage::{Purpose, UsageReport};
use serde_json::{Value, json};
use sqlx::Executor;
use testing::postgres::{PASSWORD, PostgresServer};
use tokio::net::TcpListener;

use super::Runner;

/// Texts of two knowledge bases. The components of a vector stand for ships, tea and rain.
const CHUNKS: &str = "
CREATE EXTENSION vector;
CREATE TABLE chunks (
    id text PRIMARY KEY, content text, embedding vector(3), metadata jsonb, kb_id text,
    tsv tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED
);
INSERT INTO chunks (id, content, embedding, metadata, kb_id) VALUES
    ('1', 'Schooners have two masts or more.', '[1,0,0]', '{\"page\": 4}', 'sea'),
    ('2', 'A brig is a ship with two square-rigged masts.', '[0.9,0.1,0]', NULL, 'sea'),
    ('3', 'Harbour dues are payable in tea.', '[0.4,0.6,0]', '{}', 'sea'),
    ('4', 'Article 17-B: the bosun pipes at noon.', '[0,0,1]', NULL, 'sea'),
    ('5', 'Rain is common in November.', '[0.1,0,0.9]', NULL, 'sea'),
    ('6', 'Ropes are called lines.', '[0.5,0,0.5]', NULL, 'sea'),
    ('7', 'Fog signals are given by bell.', '[0.2,0,0.8]', NULL, 'sea'),
    ('8', 'Not about ships, and of another base: masts, masts, masts.', '[1,0,0]', NULL, 'land');";

/// Fake of Ollama's `POST /api/embed`, with models that know few words, and some that misbehave.
async fn ollama() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let embed = async |Json(request): Json<Value>| -> Response {
        let about = |word: &str| if request["input"].to_string().contains(word) { 1.0 } else { 0.0 };
        let vector = match request["model"].as_str() {
            Some("nomic-embed-text") => vec![about("ship"), about("tea"), about("rain")],
            Some("short") => vec![1.0],
            Some("slow") => return pending().await,
            _ => return (StatusCode::NOT_FOUND, json!({"error": "model not found"}).to_string()).into_response(),
        };
        Json(json!({"model": request["model"], "embeddings": [vector]})).into_response()
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/api/embed", post(embed))).await });
    format!("http://{address}")
}

fn base(name: &str, url: &str, model: &str) -> Value {
    json!({"name": name, "type": "pgvector", "connection_url": url, "kb_id": "sea", "description": format!("All of {name}."),
           "embedding_provider": "ollama", "embedding_model": model})
}

async fn runner(bases: Value) -> Runner {
    Runner::with(&[("CORAIL_KNOWLEDGE_BASES", bases.to_string()), ("OLLAMA_BASE_URL", ollama().await)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_knowledge_base_is_a_tool_that_searches_by_meaning_and_by_words() {
    let server = PostgresServer::start_with_vectors().await;
    server.connect().await.execute(sqlx::raw_sql(CHUNKS)).await.unwrap();
    let url = server.url("postgresql");
    let runner = runner(json!([base("sea", &url, "nomic-embed-text"), base("short", &url, "short")])).await;
    assert_eq!(runner.say("/tools").await, "search_sea: All of sea.\nsearch_short: All of short.");

    // First the hits of both lists, then those of vector search alone; never a text of another knowledge base.
    let found = runner.say(r#"/tool search_sea {"query": "masts of a ship"}"#).await;
    let texts: Vec<_> = found.split("\n\n").collect();
    assert_eq!(texts.len(), 5, "{found}");
    assert_eq!(texts[0], "[1] A brig is a ship with two square-rigged masts.");
    assert_eq!(texts[1], "[2] Schooners have two masts or more.\n    {\"page\": 4}");
    assert!(!found.contains("another base"), "{found}");

    // Words that the embedding does not know.
    let found = runner.say(r#"/tool search_sea {"query": "who pipes at noon"}"#).await;
    assert!(found.contains("Article 17-B"), "{found}");

    for (call, error) in [
        (r#"search_sea {"query": " "}"#, "wrong arguments: `query` is empty"),
        ("search_sea", "wrong arguments: `query` is missing"),
        (r#"search_short {"query": "x"}"#, "the database refused: different vector dimensions"),
    ] {
        let reply = runner.say(format!("/tool {call}")).await;
        assert!(reply.contains(&format!(" failed: {error}")), "{call}: {reply}");
    }
    let nothing = runner.say("/tool search_sea {\"query\": \"\\u0000'; DROP TABLE chunks; --\"}").await;
    assert!(nothing.contains("[1] "), "{nothing}");
    let (_, usage) = runner.get("/_recif/usage").await;
    let usage: UsageReport = serde_json::from_str(&usage).unwrap();
    let embedded = usage.cells.iter().filter(|cell| cell.key.purpose == Purpose::Embed);
    assert_eq!(embedded.map(|cell| cell.totals.calls).sum::<u64>(), 4, "{usage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_or_a_model_that_fails_is_an_answer_for_the_model() {
    let mut server = PostgresServer::start_with_vectors().await;
    let url = server.url("postgresql");
    let runner =
        runner(json!([base("empty", &url, "nomic-embed-text"), base("strange", &url, "surely-not-there")])).await;
    assert_eq!(runner.get("/readyz").await.0, 200);
    let ask = async |name: &str| runner.say(format!(r#"/tool search_{name} {{"query": "ship"}}"#)).await;
    let missing = ask("empty").await;
    assert!(missing.contains("failed: the database refused: relation \"chunks\" does not exist"), "{missing}");
    let strange = ask("strange").await;
    assert!(strange.contains("failed: the query cannot be embedded: "), "{strange}");
    server.connect().await.execute(sqlx::raw_sql(CHUNKS)).await.unwrap();
    server.stop();
    let away = ask("empty").await;
    assert!(away.contains("failed: the database does not answer: "), "{away}");
    assert!(!format!("{missing}{strange}{away}").contains(PASSWORD));
    server.resume().await;
    assert!(ask("empty").await.starts_with("[1] "));
}

#[tokio::test]
async fn a_knowledge_base_that_can_never_be_searched_keeps_the_agent_from_being_ready() {
    let url = "postgresql://u:SECRET@a,b/d";
    for (bases, why) in [
        (json!([base("x", url, "m")]), "knowledge base `x`: its URL names several hosts"),
        (
            json!([{"name": "x", "connection_url": "postgresql://h/d", "embedding_provider": "soothsayer"}]),
            "knowledge base `x`: ",
        ),
    ] {
        let (status, text) = runner(bases).await.get("/readyz").await;
        assert!(status == 503 && text.contains(why) && !text.contains("SECRET"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_does_not_answer_is_given_up() {
    let runner = runner(json!([base("x", "postgresql://127.0.0.1:1/d", "slow")])).await;
    let reply = runner.say(r#"/tool search_x {"query": "ship"}"#).await;
    assert!(reply.starts_with("tool search_x failed: "), "{reply}");
}
