//! Tests of requests beyond the limits of a workload.

use crds::usage::SpentTokens;
use identity::{DEMAND_AUDIENCE, KeySet, LIMITS_AUDIENCE, LIMITS_PATH, unix_now};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{CostBudgets, RateLimits, TokenBudgets, admin::Admin, clients::ClientId, limits::LimitTime};

const PER_CALLER: RateLimits = RateLimits { per_workload: None, per_caller: Some(2) };

fn limited(limits: RateLimits) -> Object {
    Object { limits: Some(limits), ..object() }
}

fn request(target: &str, from: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: {from}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Starts a Pod that answers every request.
async fn answering_pod() -> SocketAddr {
    pod_that_sends(OK.to_vec()).await
}

/// Starts a Pod that answers every request with this.
async fn pod_that_sends(answer: Vec<u8>) -> SocketAddr {
    let mut pod = TestPod::start().await;
    let address = pod.address;
    tokio::spawn(async move {
        while let Some(mut io) = pod.accepted.recv().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                loop {
                    read_head(&mut io).await;
                    if io.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn a_caller_beyond_the_limit_is_told_when_to_come_again_and_others_are_served() {
    let gateway = TestGateway::start(&["--trusted-proxies", "127.0.0.1"], &[answering_pod().await]).await;
    gateway.object(Some(limited(PER_CALLER)));
    let ask = async |target: &str, from: &str| gateway.answer(&request(target, from)).await;
    for _ in 0..2 {
        assert!(ask("/v1/agents/ns/a/x", "192.0.2.1").await.starts_with("HTTP/1.1 200 "));
    }
    let refused = ask("/v1/agents/ns/a/x", "192.0.2.1").await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("x-recif-reason: rate\r\n"), "{refused}");
    let wait: u64 = field(&refused, "Retry-After").unwrap().parse().unwrap();
    assert!((50..=70).contains(&wait), "{wait}");
    let said = body(&refused);
    assert_eq!((&said["reason"], &said["retryAfter"]), (&json!("rate"), &json!(wait)));
    assert!(said["error"].as_str().unwrap().contains("each caller of this workload may have 2 requests in a minute"));
    let in_their_form = body(&ask("/v1/agents/ns/a/v1/chat/completions", "192.0.2.1").await);
    assert_eq!(in_their_form["error"]["code"], "rate_limit_exceeded");
    assert!(ask("/v1/agents/ns/a/x", "192.0.2.2").await.starts_with("HTTP/1.1 200 "), "another caller");
    let metrics = gateway.shared.metrics.encode().unwrap();
    let line =
        "recif_gateway_limited_total{kind=\"Agent\",namespace=\"ns\",name=\"a\",per=\"caller\",reason=\"rate\"} 2";
    assert!(metrics.contains(line), "{metrics}");
    gateway.object(Some(object()));
    assert!(ask("/v1/agents/ns/a/x", "192.0.2.1").await.starts_with("HTTP/1.1 200 "), "the limit is gone");
}

#[tokio::test]
async fn all_callers_share_the_limit_of_a_workload() {
    let gateway = TestGateway::start(&["--trusted-proxies", "127.0.0.1"], &[answering_pod().await]).await;
    gateway.object(Some(limited(RateLimits { per_workload: Some(3), per_caller: Some(2) })));
    let mut codes = Vec::new();
    for from in ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        codes.push(gateway.answer(&request("/v1/agents/ns/a/x", from)).await[9..12].to_owned());
    }
    assert_eq!(codes, ["200", "200", "429", "200", "429"]);
}

#[tokio::test]
async fn an_mcp_client_gets_an_error_of_json_rpc() {
    let gateway = TestGateway::start(&[], &[]).await;
    let limits = RateLimits { per_workload: Some(1), per_caller: None };
    let server = Object { no_pod: None, ..limited(limits) };
    gateway.shared.routes.object(RoutedKind::McpServer, &Key::new("ns", "m"), Some(Arc::new(server)));
    let now = LimitTime::now(&gateway.shared.clock);
    let caller = || ClientId::User("alice".into());
    assert!(gateway.shared.limits.admit(limits, "mcpserver/ns/m", caller, now).is_ok());
    let refused = gateway.answer(&request("/v1/mcp/ns/m/mcp", "192.0.2.1")).await;
    let error = &body(&refused)["error"];
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("rate")), "{refused}");
    assert!(error["data"]["retryAfterMs"].as_u64().unwrap() > 50_000, "{refused}");
}

/// Returns an answer with this header.
fn with_header(name: &str, value: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{name}: {value}\r\n\r\nok").into_bytes()
}

fn budgeted(per_workload: Option<u64>, per_caller: Option<u64>) -> Object {
    Object { budgets: Some(TokenBudgets { per_workload, per_caller }), ..object() }
}

#[tokio::test]
async fn once_its_tokens_are_used_a_caller_is_refused_until_midnight_and_others_are_served() {
    let pod = pod_that_sends(with_header("x-recif-usage", "in=7, out=5, calls=1")).await;
    let gateway = TestGateway::start(&["--trusted-proxies", "127.0.0.1"], &[pod]).await;
    gateway.object(Some(budgeted(Some(48), Some(13))));
    let ask = async |target: &str, from: &str| gateway.answer(&request(target, from)).await;
    for _ in 0..2 {
        assert!(ask("/v1/agents/ns/a/x", "192.0.2.1").await.starts_with("HTTP/1.1 200 "), "a token is left");
    }
    let refused = ask("/v1/agents/ns/a/x", "192.0.2.1").await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("x-recif-reason: budget\r\n"), "{refused}");
    assert_eq!(field(&refused, "x-should-retry"), Some("false"), "{refused}");
    let wait: u64 = field(&refused, "Retry-After").unwrap().parse().unwrap();
    assert_eq!(wait, 43_200);
    let said = body(&refused);
    assert_eq!((&said["reason"], &said["retryAfter"]), (&json!("budget"), &json!(wait)));
    assert!(said["error"].as_str().unwrap().contains("each caller of this workload may use 13 tokens a day"), "{said}");
    let in_their_form = body(&ask("/v1/agents/ns/a/v1/chat/completions", "192.0.2.1").await);
    assert_eq!(in_their_form["error"]["code"], "insufficient_quota");

    for _ in 0..2 {
        assert!(ask("/v1/agents/ns/a/x", "192.0.2.2").await.starts_with("HTTP/1.1 200 "), "another caller");
    }
    let refused = ask("/v1/agents/ns/a/x", "192.0.2.3").await;
    assert!(body(&refused)["error"].as_str().unwrap().starts_with("this workload may use 48 tokens"), "{refused}");
    gateway.shared.measure_budgets();
    let metrics = gateway.shared.metrics.encode().unwrap();
    let of = "kind=\"Agent\",namespace=\"ns\",name=\"a\"";
    for line in [
        format!("recif_gateway_limited_total{{{of},per=\"caller\",reason=\"budget\"}} 2\n"),
        format!("recif_gateway_limited_total{{{of},per=\"workload\",reason=\"budget\"}} 1\n"),
        format!("recif_gateway_budget_left_ratio{{{of}}} 0.0\n"),
    ] {
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    gateway.object(Some(budgeted(Some(1000), None)));
    assert!(ask("/v1/agents/ns/a/x", "192.0.2.1").await.starts_with("HTTP/1.1 200 "), "the budget is larger");
}

#[tokio::test]
async fn a_pod_gets_to_know_what_is_left_and_not_by_the_client() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let request = b"GET /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nX-Recif-Left: day=1, all=9\r\n\r\n";
    for (workload, expected) in [
        (object(), None),
        (budgeted(Some(100), None), Some(format!("day={TODAY}, all=100, seen=0"))),
        (budgeted(Some(100), Some(50)), Some(format!("day={TODAY}, all=58, own=50"))),
    ] {
        gateway.object(Some(workload));
        let mut client = gateway.send(request).await;
        let (mut io, head) = pod.next().await;
        assert_eq!(field(&head, "x-recif-left"), expected.as_deref(), "{head}");
        let answer = with_header("Connection", "close\r\nx-recif-usage: in=30, out=12");
        io.write_all(&answer).await.unwrap();
        whole(&mut client).await;
    }
}

fn priced(budget: u64, prices: &str) -> Object {
    let budgets = TokenBudgets { per_workload: Some(budget), per_caller: None };
    let prices = crds::usage::ModelPrices::read(prices).unwrap();
    Object { cost: Some(CostBudgets::new(budgets, prices)), ..object() }
}

#[tokio::test]
async fn a_price_that_is_corrected_counts_for_the_whole_day() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    for (prices, left, spent) in [
        ("EUR, p/m 10000000 0 0 0", "all=1000, seen=0", 2000),
        // The typo is corrected, and the Pod tells what its tokens cost at the new price.
        ("EUR, p/m 1000000 0 0 0", "all=1000, run=\"5\", seen=0", 200),
        ("EUR, p/m 1000000 0 0 0", "all=800, run=\"5\", seen=200", 210),
        ("USD, p/m 2000000 0 0 0", "all=1000, run=\"5\", seen=0", 420),
        ("EUR, p/m 1000000 0 0 0", "all=790, run=\"5\", seen=210", 210),
    ] {
        gateway.object(Some(priced(1000, prices)));
        let mut client = gateway.send(GET).await;
        let (mut io, head) = pod.next().await;
        assert_eq!(field(&head, "x-recif-left-cost"), Some(&*format!("day={TODAY}, {left}")), "{head}");
        let total = format!("close\r\nx-recif-cost: day={TODAY}, run=\"5\", all={spent}");
        io.write_all(&with_header("Connection", &total)).await.unwrap();
        whole(&mut client).await;
    }
    gateway.object(Some(priced(1000, "EUR, p/m 10000000 0 0 0")));
    let refused = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
    assert!(refused.contains("x-recif-reason: budget\r\n"), "{refused}");
}

#[tokio::test]
async fn cost_counts_by_the_prices_that_each_request_takes_to_its_pod() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let prices = "EUR, openai/gpt-5 1000000 0 0 2000000";
    gateway.object(Some(priced(2_000_000, prices)));
    let total = format!("close\r\nx-recif-cost: day={TODAY}, run=\"5\", all=1999999");
    for (left, counts) in [
        // Without a total the gateway counts what the response used: 1000 * 1000 + 250 * 2000.
        ("2000000, seen=0", "close\r\nx-recif-usage: in=1000, out=250, model=\"openai/gpt-5\""),
        ("500000", "close\r\nx-recif-usage: in=0, out=0"),
        ("500000", total.as_str()),
    ] {
        let mut client = gateway.send(GET).await;
        let (mut io, head) = pod.next().await;
        assert_eq!(field(&head, "x-recif-left-cost"), Some(&*format!("day={TODAY}, all={left}")), "{head}");
        assert_eq!((field(&head, "x-recif-prices"), field(&head, "x-recif-left")), (Some(prices), None));
        io.write_all(&with_header("Connection", counts)).await.unwrap();
        let (answer, _) = whole(&mut client).await;
        assert!(!answer.contains("x-recif-cost"), "{answer}");
    }
    let refused = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("x-recif-reason: budget\r\n"), "{refused}");
    assert!(refused.contains("this workload may cost 0.002 EUR a day"), "{refused}");
    gateway.shared.measure_budgets();
    let metrics = gateway.shared.metrics.encode().unwrap();
    let of = "kind=\"Agent\",namespace=\"ns\",name=\"a\"";
    for line in [
        format!("recif_gateway_budget_left_ratio{{{of}}} 0.0\n"),
        format!("recif_gateway_cost_total{{{of},currency=\"EUR\"}} 0.0015\n"),
    ] {
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn the_totals_of_a_pod_are_those_of_the_day_and_no_client_gets_them() {
    let total = |all: u64| {
        let spent = format!("x-recif-spent: day={TODAY}, run=\"5\", all={all}");
        with_header("x-recif-usage", &format!("in=9, out=9\r\n{spent}"))
    };
    let gateway = TestGateway::start(&[], &[pod_that_sends(total(99)).await]).await;
    gateway.object(Some(budgeted(Some(100), None)));
    for _ in 0..3 {
        let answer = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("x-recif-usage"), "{answer}");
        assert!(!answer.contains("x-recif-spent"), "{answer}");
    }
    gateway.pods(&[(pod_that_sends(total(100)).await, EndpointState::Ready)]);
    assert!(gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await.starts_with("HTTP/1.1 200 "));
    let refused = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
}

/// Returns what the operator hears of the reports of the workload.
async fn reporting(gateway: &TestGateway) -> Value {
    let request = axum::http::Request::get("/_recif/demand").body(axum::body::Body::empty()).unwrap();
    let answer = Admin::new(gateway.shared.clone()).router().oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(answer.into_body(), 100_000).await.unwrap();
    let demand: Value = serde_json::from_slice(&body).unwrap();
    demand["workloads"][0]["tokens"]["reporting"].clone()
}

#[tokio::test]
async fn the_operator_hears_which_workload_with_a_budget_reports_no_usage() {
    let gateway = TestGateway::start(&[], &[answering_pod().await]).await;
    let post: &[u8] = b"POST /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let ask = async |request: &[u8]| assert!(gateway.answer(request).await.starts_with("HTTP/1.1 200 "));
    ask(post).await;
    gateway.object(Some(budgeted(None, Some(1000))));
    assert_eq!(reporting(&gateway).await, json!({ "any": false, "without": 0 }), "it had no budget");
    ask(post).await;
    ask(post).await;
    ask(request("/v1/agents/ns/a/x", "192.0.2.1").as_slice()).await;
    assert_eq!(reporting(&gateway).await, json!({ "any": false, "without": 2 }), "a page of it asks no model");
    gateway.pods(&[(pod_that_sends(with_header("x-recif-usage", "in=0, out=0")).await, EndpointState::Ready)]);
    ask(post).await;
    assert_eq!(reporting(&gateway).await, json!({ "any": true, "without": 2 }));
}

#[tokio::test]
async fn what_another_gateway_heard_of_usage_is_known_after_midnight_too() {
    let gateway = TestGateway::start(&[], &[answering_pod().await]).await;
    let object = budgeted(Some(1000), None);
    gateway.object(Some(object.clone()));
    let limits = &gateway.shared.limits;
    let totals = SpentTokens { day: TODAY, run: 5, all: 9, own: None };
    let user = || ClientId::User("ada".into());
    limits.take_totals(&object.budgets.unwrap(), "agent/ns/a", user, &totals, LimitTime::now(&Clock::at(NOON)));
    assert_eq!(reporting(&gateway).await, json!({ "any": true, "without": 0 }));
    limits.sweep(LimitTime::now(&Clock::at(NOON + 86_400_000)));
    assert_eq!(reporting(&gateway).await, json!({ "any": true, "without": 0 }), "the sums of that day are gone");
}

#[tokio::test]
async fn without_a_budget_totals_are_not_taken_and_no_client_gets_them_either() {
    let totals =
        format!("close\r\nX-Recif-Spent: day={TODAY}, run=\"5\", all=9\r\nX-Recif-Cost: day={TODAY}, run=\"5\", all=9");
    let gateway = TestGateway::start(&[], &[pod_that_sends(with_header("Connection", &totals)).await]).await;
    let answer = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!((field(&answer, "x-recif-spent"), field(&answer, "x-recif-cost")), (None, None), "{answer}");
    let now = LimitTime::now(&gateway.shared.clock);
    assert_eq!(gateway.shared.limits.spent_today("agent/ns/a", now), 0);
}

#[tokio::test]
async fn a_stream_that_its_client_leaves_is_counted_by_the_next_response() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    gateway.object(Some(budgeted(Some(100), None)));
    for all in [0, 100] {
        let mut client = gateway.send(GET).await;
        let (mut io, _) = pod.next().await;
        let spent = format!("x-recif-spent: day={TODAY}, run=\"5\", all={all}");
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{spent}\r\n\r\n");
        io.write_all(head.as_bytes()).await.unwrap();
        assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200 "));
    }
    let refused = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
    assert!(refused.contains("x-recif-reason: budget\r\n"), "{refused}");
}

#[tokio::test]
async fn admissions_are_exchanged_only_by_those_who_have_the_keys() {
    let gateway = TestGateway::start(&[], &[]).await;
    let keys = Arc::new(KeySet::generate().unwrap());
    gateway.shared.keys.set(keys.clone());
    let ask = async |audience: &str, body: String| {
        let token = keys.token(audience, None, unix_now() + 60);
        let request = axum::http::Request::post(LIMITS_PATH).header("X-Recif-Caller", token);
        let request = request.body(axum::body::Body::from(body)).unwrap();
        let response = Admin::new(gateway.shared.clone()).router().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, serde_json::from_slice::<Value>(&body).unwrap_or_default())
    };
    let cell = json!({
        "workload": "agent/ns/a", "key": "all", "instance": 7,
        "counts": { "newest": NOON / 10_000, "counts": [1, 1, 1, 1, 1, 1, 1] },
    });
    let spent = json!({ "workload": "agent/ns/a", "key": "all", "instance": 7, "day": TODAY, "tokens": 12 });
    let mut report = json!({ "from": 7, "to": 0, "read": 0, "after": 0, "version": 9, "more": false, "cells": [cell] });
    assert_eq!(ask(DEMAND_AUDIENCE, report.to_string()).await.0, 401, "the operator has no business there");
    assert_eq!(ask(LIMITS_AUDIENCE, "{}".into()).await.0, 400);
    let (status, answer) = ask(LIMITS_AUDIENCE, report.to_string()).await;
    assert_eq!((status, &answer["to"]), (200, &json!(7)));
    assert_eq!(answer["cells"][0]["instance"], 7, "what it read is repeated: {answer}");
    assert_eq!(answer["spent"], json!([]), "a gateway of an earlier version sends no tokens");
    report["spent"] = json!([spent]);
    assert_eq!(ask(LIMITS_AUDIENCE, report.to_string()).await.1["spent"], json!([spent]));
    let limits = RateLimits { per_workload: Some(7), per_caller: None };
    gateway.object(Some(limited(limits)));
    let refused = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
    assert!(refused.starts_with("HTTP/1.1 429 "), "the other gateway admitted as many: {refused}");
    gateway.object(Some(budgeted(Some(12), None)));
    let refused = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
    assert!(refused.contains("x-recif-reason: budget\r\n"), "the other gateway has counted as many: {refused}");
}
