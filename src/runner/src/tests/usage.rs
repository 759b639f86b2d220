//! Usage of models, compared with what a scripted provider bills.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use crds::usage::{Purpose, SpentTokens, UsageReport, UsageTotals};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;

/// Bill of the provider.
#[derive(Default)]
struct Bill {
    requests: AtomicU64,
    /// Calls, input, cached input and output by caller and model.
    sums: Mutex<BTreeMap<(String, String), [u64; 4]>>,
}

/// Answers a request in OpenAI's form. Each third one is refused for now, and each seventh of the first model for good; the
/// others are billed to the first word of the user's message.
async fn answer(State(bill): State<Arc<Bill>>, body: String) -> Response {
    let number = bill.requests.fetch_add(1, Ordering::Relaxed);
    if number % 3 == 1 {
        return (StatusCode::SERVICE_UNAVAILABLE, [("retry-after-ms", "1")]).into_response();
    }
    let body: Value = serde_json::from_str(&body).unwrap();
    if number % 7 == 3 && body["model"] == "gpt" {
        return StatusCode::NOT_FOUND.into_response();
    }
    let user = body["messages"].as_array().unwrap().iter().find(|message| message["role"] == "user").unwrap();
    let caller = user["content"].as_str().unwrap().split(' ').next().unwrap().to_owned();
    let (input, cached, output) = (20 + number, number % 20, 1 + number % 7);
    {
        let mut sums = bill.sums.lock().unwrap();
        let sum = sums.entry((caller, body["model"].as_str().unwrap().to_owned())).or_default();
        for (sum, more) in sum.iter_mut().zip([1, input, cached, output]) {
            *sum += more;
        }
    }
    let text = json!({ "choices": [{ "delta": { "content": "Hello" }, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": {
        "prompt_tokens": input, "completion_tokens": output, "prompt_tokens_details": { "cached_tokens": cached },
    }});
    let events = format!("data: {text}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
    ([(CONTENT_TYPE, "text/event-stream")], events).into_response()
}

/// Starts an agent whose model and fallback are served by `routes`.
async fn runner(routes: Router) -> Runner {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let plugin = json!({ "type": "openai", "extraConfig": { "baseUrl": url } });
    let fallbacks = json!([{ "model": { "provider": "openai", "model": "backup" }, "plugin": plugin }]);
    Runner::with(&[
        ("CORAIL_MODEL_TYPE", "openai".into()),
        ("CORAIL_MODEL_ID", "gpt".into()),
        ("CORAIL_MODEL_BASE_URL", url),
        ("CORAIL_MODEL_FALLBACKS", fallbacks.to_string()),
    ])
    .await
}

async fn report(runner: &Runner, query: &str) -> UsageReport {
    let (status, text) = runner.get(&format!("/_recif/usage{query}")).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

async fn chat(runner: &Runner, caller: &str, accept: &str) -> reqwest::Response {
    let request = runner.client.post(runner.url("/chat")).header("accept", accept).header("x-recif-user", caller);
    request.body(json!({ "message": format!("{caller} asks") }).to_string()).send().await.unwrap()
}

#[tokio::test]
async fn tokens_by_caller_and_model_are_those_that_the_provider_bills() {
    let bill = Arc::new(Bill::default());
    let routes = Router::new().route("/v1/chat/completions", post(answer)).with_state(bill.clone());
    let runner = runner(routes).await;
    let mut told = 0;
    for turn in 0..60 {
        let caller = ["ada", "ben", "cleo"][turn % 3];
        let is_stream = turn % 2 == 0;
        let accept = if is_stream { "text/event-stream" } else { "application/json" };
        let response = chat(&runner, caller, accept).await;
        let header = response.headers().get("x-recif-usage").map(|value| value.to_str().unwrap().to_owned());
        let text = response.text().await.unwrap();
        assert_eq!(header.is_some(), !is_stream, "{text}");
        told += match header {
            Some(header) => header.strip_prefix("in=").unwrap().split(',').next().unwrap().parse::<u64>().unwrap(),
            None => {
                let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
                serde_json::from_str::<Value>(last).unwrap()["usage"]["input"].as_u64().unwrap()
            }
        };
    }
    let report = report(&runner, "").await;
    let mut counted: BTreeMap<(String, String), [u64; 4]> = BTreeMap::new();
    for cell in &report.cells {
        let UsageTotals { calls, input, cache_read, output, estimated, .. } = cell.totals;
        assert_eq!((estimated, cell.key.provider.as_str()), (0, "openai"));
        let sum = counted.entry((cell.key.caller.clone(), cell.key.model.clone())).or_default();
        for (sum, more) in sum.iter_mut().zip([calls, input, cache_read, output]) {
            *sum += more;
        }
    }
    let billed = bill.sums.lock().unwrap().clone();
    assert_eq!(counted, billed);
    assert!(billed.keys().any(|(_, model)| model == "backup"), "{billed:?}");
    assert_eq!(told, billed.values().map(|sum| sum[1]).sum::<u64>(), "each response has its own part");
    let (_, metrics) = runner.get("/metrics").await;
    for line in [
        r#"recif_runner_fallbacks_total{from="openai/gpt",to="openai/backup"} "#,
        r#"recif_runner_model_seconds_count{model="openai/backup"} "#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let titles = report.cells.iter().filter(|cell| cell.key.purpose == Purpose::Title);
    assert_eq!(titles.map(|cell| cell.totals.calls).sum::<u64>(), 60);
}

#[tokio::test]
async fn a_stream_tells_its_usage_in_a_trailer_to_those_who_take_trailers() {
    let routes = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::new(Bill::default()));
    let runner = runner(routes).await;
    for (fields, is_told) in [("", false), ("TE: trailers\r\nConnection: TE\r\n", true)] {
        let body = json!({ "message": "ada asks" }).to_string();
        let request = format!(
            "POST /chat HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nContent-Length: {}\r\n{fields}\r\n{body}",
            runner.address,
            body.len()
        );
        let mut io = TcpStream::connect(runner.address).await.unwrap();
        io.write_all(request.as_bytes()).await.unwrap();
        let (mut received, mut text) = (Vec::new(), String::new());
        while !(text.contains("\r\n0\r\n") && text.ends_with("\r\n\r\n")) {
            assert!(io.read_buf(&mut received).await.unwrap() > 0, "{text}");
            text = String::from_utf8(received.clone()).unwrap();
        }
        let (events, end) = text.rsplit_once("\r\n0\r\n").unwrap();
        let names = "trailer: x-recif-usage, x-recif-spent, x-recif-cost, x-recif-approvals\r\n";
        assert!(events.contains(names) && events.contains("event: done"), "{events}");
        assert_eq!(end.starts_with("x-recif-usage: in="), is_told, "{end}");
        assert_eq!(end.contains("\r\nx-recif-spent: day="), is_told, "{end}");
        assert!(is_told || end == "\r\n", "{end}");
    }
}

#[tokio::test]
async fn responses_have_the_totals_of_the_day_also_at_the_head_of_a_stream() {
    let routes = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::new(Bill::default()));
    let runner = runner(routes).await;
    let spent = |response: &reqwest::Response| {
        let header = response.headers().get("x-recif-spent").map(|value| value.as_bytes().to_vec()).unwrap();
        SpentTokens::read(&header).unwrap()
    };
    let first = spent(&chat(&runner, "ada", "application/json").await);
    assert!(first.all > 0 && first.own == Some(first.all), "{first}");
    // The title of the conversation may be counted after the turn.
    let other = spent(&chat(&runner, "ben", "application/json").await);
    assert!(other.run == first.run && other.all > first.all && other.own < Some(other.all), "{first} {other}");
    let stream = spent(&chat(&runner, "ada", "text/event-stream").await);
    assert!(stream.all >= other.all && stream.own >= first.own, "{stream}: that of the turns before");
    let unknown = runner.client.post(runner.url("/chat")).body(json!({ "message": "zoe asks" }).to_string());
    assert_eq!(spent(&unknown.send().await.unwrap()).own, None);
    let counted: u64 = report(&runner, "").await.cells.iter().map(|cell| cell.totals.input + cell.totals.output).sum();
    assert!(counted >= stream.all, "{counted}");
}

#[tokio::test]
async fn what_broke_off_is_estimated_and_what_was_refused_costs_nothing() {
    let cut = async || {
        let text = json!({ "choices": [{ "delta": { "content": "a piece of an answer" }, "finish_reason": null }] });
        ([(CONTENT_TYPE, "text/event-stream")], format!("data: {text}\n\n"))
    };
    let runner_of_cut = runner(Router::new().route("/v1/chat/completions", post(cut))).await;
    assert_eq!(chat(&runner_of_cut, "ada", "application/json").await.status(), 502);
    let UsageReport { cells, .. } = report(&runner_of_cut, "").await;
    let turn = cells.iter().find(|cell| cell.key.purpose == Purpose::Turn).unwrap();
    let UsageTotals { calls, failed, input, output, estimated, .. } = turn.totals;
    assert_eq!((calls, failed, output, estimated), (0, 1, 5, input + output), "20 bytes are 5 tokens");
    assert!(input > 0 && turn.key.model == "gpt");

    let refused = async || StatusCode::FORBIDDEN;
    let runner_of_refused = runner(Router::new().route("/v1/chat/completions", post(refused))).await;
    assert_eq!(chat(&runner_of_refused, "ada", "application/json").await.status(), 502);
    let UsageReport { cells, instance, revision } = report(&runner_of_refused, "").await;
    let turns: Vec<_> = cells.iter().filter(|cell| cell.key.purpose == Purpose::Turn).collect();
    assert_eq!(turns.len(), 2, "the model and its fallback");
    for cell in turns {
        assert_eq!((cell.totals.failed, cell.totals.input, cell.totals.output), (1, 0, 0));
    }
    let nothing = report(&runner_of_refused, &format!("?instance={instance}&after={revision}")).await;
    assert_eq!((nothing.cells.len(), nothing.revision), (0, revision));
}
