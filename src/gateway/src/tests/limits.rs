//! Tests of requests beyond the limits of a workload.

use identity::{DEMAND_AUDIENCE, KeySet, LIMITS_AUDIENCE, LIMITS_PATH, unix_now};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{RateLimits, admin::Admin};

const PER_CALLER: RateLimits = RateLimits { per_workload: None, per_caller: Some(2) };

fn limited(limits: RateLimits) -> Object {
    Object { limits: Some(limits), ..object() }
}

fn request(target: &str, from: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: {from}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Starts a Pod that answers every request.
async fn answering_pod() -> SocketAddr {
    let mut pod = TestPod::start().await;
    let address = pod.address;
    tokio::spawn(async move {
        while let Some(mut io) = pod.accepted.recv().await {
            tokio::spawn(async move {
                loop {
                    read_head(&mut io).await;
                    if io.write_all(OK).await.is_err() {
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
    let now = crate::limits::LimitTime::now(&gateway.shared.clock);
    let caller = || crate::clients::ClientId::User("alice".into());
    assert!(gateway.shared.limits.admit(limits, "mcpserver/ns/m", caller, now).is_ok());
    let refused = gateway.answer(&request("/v1/mcp/ns/m/mcp", "192.0.2.1")).await;
    let error = &body(&refused)["error"];
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("rate")), "{refused}");
    assert!(error["data"]["retryAfterMs"].as_u64().unwrap() > 50_000, "{refused}");
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
        "counts": { "newest": unix_now() / 10, "counts": [1, 1, 1, 1, 1, 1, 1] },
    });
    let report = json!({ "from": 7, "to": 0, "read": 0, "after": 0, "version": 9, "more": false, "cells": [cell] });
    assert_eq!(ask(DEMAND_AUDIENCE, report.to_string()).await.0, 401, "the operator has no business there");
    assert_eq!(ask(LIMITS_AUDIENCE, "{}".into()).await.0, 400);
    let (status, answer) = ask(LIMITS_AUDIENCE, report.to_string()).await;
    assert_eq!((status, &answer["to"]), (200, &json!(7)));
    assert_eq!(answer["cells"][0]["instance"], 7, "what it read is repeated: {answer}");
    let limits = RateLimits { per_workload: Some(7), per_caller: None };
    gateway.object(Some(limited(limits)));
    let refused = gateway.answer(&request("/v1/agents/ns/a/x", "192.0.2.1")).await;
    assert!(refused.starts_with("HTTP/1.1 429 "), "the other gateway admitted as many: {refused}");
}
