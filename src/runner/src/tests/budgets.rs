//! Budgets of tokens: a turn ends once what was left of them is used.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::{
    Router,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::post,
};
use crds::usage::{LEFT_COST_HEADER, LEFT_HEADER, LeftTokens, PRICES_HEADER, SpentTokens, day_of};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

const STOPPED: &str = "[stopped: today's token budget is spent]";
const GREEDY: &str = "[stopped: the model asked for tools more than 5 times]";

/// Answers a request in OpenAI's form for 15 tokens: "hello" with text, "limit" with the most tokens that it asks for, and anything else
/// with a call of a tool besides.
async fn answer(State(asked): State<Arc<AtomicU64>>, body: String) -> Response {
    let number = asked.fetch_add(1, Ordering::Relaxed);
    let body: Value = serde_json::from_str(&body).unwrap();
    let user = body["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "user").unwrap();
    let function = json!({ "name": "datetime", "arguments": "{}" });
    let delta = match user["content"].as_str() {
        Some("hello") => json!({ "content": "Hi." }),
        Some("limit") => json!({ "content": body["max_tokens"].to_string() }),
        _ => {
            let calls = json!([{ "index": 0, "id": format!("call_{number}"), "function": function }]);
            json!({ "content": "Hm. ", "tool_calls": calls })
        }
    };
    let text = json!({ "choices": [{ "delta": delta, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
    let events = format!("data: {text}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
    ([(CONTENT_TYPE, "text/event-stream")], events).into_response()
}

/// Starts an agent with that model and a tool. Returns the number of requests to the model, too.
async fn start() -> (Runner, Arc<AtomicU64>) {
    let asked = Arc::<AtomicU64>::default();
    let routes = Router::new().route("/v1/chat/completions", post(answer)).with_state(asked.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let runner = Runner::with(&[
        ("CORAIL_MODEL_TYPE", "openai".into()),
        ("CORAIL_MODEL_ID", "gpt".into()),
        ("CORAIL_MODEL_BASE_URL", url),
        ("CORAIL_TOOLS", json!([{ "name": "datetime", "type": "builtin" }]).to_string()),
    ])
    .await;
    (runner, asked)
}

/// Sends a request of which a gateway says that so many tokens are left.
async fn send(runner: &Runner, path: &str, accept: &str, left: &LeftTokens, body: &Value) -> reqwest::Response {
    let request = runner.client.post(runner.url(path)).header("accept", accept).header(LEFT_HEADER, left.to_string());
    request.body(body.to_string()).send().await.unwrap()
}

/// Returns the status, the headers and the JSON of the response.
async fn ask(runner: &Runner, path: &str, left: &LeftTokens, body: &Value) -> (u16, HeaderMap, Value) {
    let response = send(runner, path, "application/json", left, body).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

fn left_today(all: u64) -> LeftTokens {
    LeftTokens { day: day_of(crate::usage::now_seconds()), all: Some(all), own: None }
}

#[tokio::test]
async fn a_turn_keeps_its_text_and_ends_once_what_was_left_is_used() {
    let (runner, asked) = start().await;
    // A conversation that has its title: that costs tokens too.
    let (_, first) = runner.chat(json!({ "message": "hello" })).await;
    let work = json!({ "message": "work", "conversation_id": first["conversation_id"] });
    let LeftTokens { day, .. } = left_today(0);
    for (left, answers, end) in [
        (left_today(30), 2, STOPPED),
        (left_today(31), 3, STOPPED),
        (LeftTokens { own: Some(15), ..left_today(1000) }, 1, STOPPED),
        (LeftTokens { day, all: None, own: None }, 6, GREEDY),
        (LeftTokens { day: day - 1, ..left_today(0) }, 6, GREEDY),
    ] {
        let (status, _, answer) = ask(&runner, "/chat", &left, &work).await;
        let expected = format!("{}{end}", "Hm. ".repeat(answers));
        assert_eq!((status, answer["reply"].as_str()), (200, Some(&*expected)), "{left}");
    }
    let stream = send(&runner, "/chat", "text/event-stream", &left_today(15), &work).await.text().await.unwrap();
    assert!(stream.contains(STOPPED) && stream.contains("event: done"), "{stream}");

    let before = asked.load(Ordering::Relaxed);
    let (status, headers, answer) = ask(&runner, "/chat", &left_today(0), &work).await;
    let why = "the model did not answer: the tokens of today are spent: wait until 00:00 UTC";
    assert_eq!((status, &answer["error"]), (429, &json!(why)));
    assert_eq!(headers["x-should-retry"], "false");
    let wait: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
    assert_eq!(asked.load(Ordering::Relaxed), before, "no model is asked");
}

/// Sends a message with these headers, and returns the status and the JSON of the response.
async fn post(runner: &Runner, headers: &[(&str, String)], body: &Value) -> (u16, Value) {
    let request = runner.client.post(runner.url("/chat")).body(body.to_string());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    let response = request.send().await.unwrap();
    (response.status().as_u16(), serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

#[tokio::test]
async fn what_a_gateway_said_is_left_holds_for_requests_that_come_by_none() {
    let (runner, _) = start().await;
    let (_, first) = runner.chat(json!({ "message": "hello" })).await;
    let hello = json!({ "message": "hello", "conversation_id": first["conversation_id"] });
    let work = json!({ "message": "work", "conversation_id": first["conversation_id"] });
    let (by_gateway, left) = (("x-recif-via", "g".to_owned()), |all: u64| (LEFT_HEADER, left_today(all).to_string()));
    assert_eq!(post(&runner, &[by_gateway.clone(), left(45)], &hello).await.0, 200);
    let (_, answer) = post(&runner, &[], &work).await;
    assert_eq!(answer["reply"], format!("Hm. Hm. {STOPPED}"), "30 tokens were left");
    for headers in [vec![], vec![left(1_000_000)]] {
        assert_eq!(post(&runner, &headers, &work).await.0, 429, "no word but that of a gateway: {headers:?}");
    }
    assert_eq!(post(&runner, &[by_gateway], &hello).await.0, 200);
    let (_, answer) = post(&runner, &[], &work).await;
    assert!(answer["reply"].as_str().is_some_and(|reply| reply.ends_with(GREEDY)), "it has no budget any more");
}

#[tokio::test]
async fn an_answer_may_be_no_longer_than_what_is_left_but_not_too_short() {
    let (runner, _) = start().await;
    for (left, expected) in [(3000, "3000"), (10, "1024"), (4096, "null")] {
        let (_, _, answer) = ask(&runner, "/chat", &left_today(left), &json!({ "message": "limit" })).await;
        assert_eq!(answer["reply"], expected, "{left}");
    }
}

#[tokio::test]
async fn a_turn_ends_once_what_it_may_cost_is_used_and_responses_have_the_cost_of_the_day() {
    let (runner, _) = start().await;
    let (_, first) = runner.chat(json!({ "message": "hello" })).await;
    let work = json!({ "message": "work", "conversation_id": first["conversation_id"] });
    // An answer costs 10 * 3000 + 5 * 4000.
    let request = runner.client.post(runner.url("/chat")).header(LEFT_COST_HEADER, left_today(100_000).to_string());
    let request = request.header(PRICES_HEADER, "EUR, openai/gpt 3000000 0 0 4000000").body(work.to_string());
    let response = request.send().await.unwrap();
    let cost = SpentTokens::read(response.headers()["x-recif-cost"].as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(answer["reply"], "Hm. Hm. [stopped: today's cost budget is spent]");
    // The first message took an answer and a title.
    assert_eq!((cost.all, cost.own), (4 * 50_000, None));
    let unpriced = runner.client.post(runner.url("/chat")).body(work.to_string()).send().await.unwrap();
    assert!(!unpriced.headers().contains_key("x-recif-cost"), "no gateway asks for it");
}

#[tokio::test]
async fn clients_of_openai_learn_it_in_their_form() {
    let (runner, _) = start().await;
    let (path, body) =
        ("/v1/chat/completions", json!({ "model": "agent", "messages": [{ "role": "user", "content": "work" }] }));
    let (status, _, answer) = ask(&runner, path, &left_today(15), &body).await;
    let choice = &answer["choices"][0];
    assert_eq!((status, &choice["finish_reason"]), (200, &json!("length")));
    assert_eq!(choice["message"]["content"], format!("Hm. {STOPPED}"));
    let (status, _, refused) = ask(&runner, path, &left_today(0), &body).await;
    let quota = &json!("insufficient_quota");
    assert_eq!((status, &refused["error"]["code"], &refused["error"]["type"]), (429, quota, quota));
}
