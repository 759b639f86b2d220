//! Tests of the caller's name that the workload gets.

use std::sync::Arc;

use identity::{KeySet, unix_now};

use super::*;

/// Starts a proxy in front of `Agent ns/a` that knows these keys.
async fn proxy(keys: &KeySet, required: bool) -> TestProxy {
    let (keys, required) = (keys.public(), required.to_string());
    let variables = [
        ("RECIF_CALLER_KEYS", keys.as_str()),
        ("RECIF_REQUIRE_IDENTITY", required.as_str()),
        ("RECIF_KIND", "Agent"),
        ("RECIF_NAMESPACE", "ns"),
        ("RECIF_NAME", "a"),
    ];
    TestProxy::start(&variables).await
}

fn token(keys: &KeySet, user: &str, age: i64) -> String {
    let expires = unix_now().checked_add_signed(-age).unwrap();
    format!("X-Recif-Caller: {}\r\n", keys.token("agent/ns/a", Some(user), expires))
}

fn get(fields: &str) -> Vec<u8> {
    format!("GET /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes()
}

/// Returns the `X-Recif-*` lines that the workload gets.
async fn reported(proxy: &mut TestProxy, fields: &str) -> Vec<String> {
    let (_client, _workload, head) = proxy.request(&get(fields)).await;
    head.lines().filter(|line| line.to_lowercase().starts_with("x-recif-")).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_workload_gets_the_name_that_a_gateway_signed_and_that_it_came_by_one() {
    let (keys, others) = (KeySet::generate().unwrap(), KeySet::generate().unwrap());
    let mut proxy = proxy(&keys, false).await;
    let spoofed = "X-Recif-User: admin\r\nx-recif-approver: admin\r\nX-Recif-Via: g\r\n";
    let signed = format!("{spoofed}{}", token(&keys, "alice", -300));
    for _ in 0..2 {
        let expected = ["X-Recif-Via: g", "X-Recif-User: alice"];
        assert_eq!(reported(&mut proxy, &signed).await, expected, "the first time and from memory");
    }
    let elsewhere = format!("X-Recif-Caller: {}\r\n", keys.token("agent/ns/b", Some("alice"), unix_now() + 300));
    let twice = token(&keys, "alice", -300).repeat(2);
    let forged = token(&keys, "alice", -300).replace("X-Recif-Caller: ey", "X-Recif-Caller: ez");
    for unsigned in ["", "X-Recif-Caller: x\r\n", &forged, &token(&others, "alice", -300), &elsewhere, &twice] {
        assert!(reported(&mut proxy, &format!("{spoofed}{unsigned}")).await.is_empty(), "{unsigned}");
    }
    assert_eq!(reported(&mut proxy, &token(&keys, "alice", 58)).await, ["X-Recif-User: alice"], "clocks differ");
    assert!(reported(&mut proxy, &token(&keys, "alice", 61)).await.is_empty());
}

#[tokio::test]
async fn the_workload_gets_to_know_an_approver_by_a_signature_alone() {
    let keys = KeySet::generate().unwrap();
    let mut signing = proxy(&keys, false).await;
    let approver = keys.approver_token("agent/ns/a", "alice", unix_now() + 300);
    let approver = format!("X-Recif-Caller: {approver}\r\n");
    for _ in 0..2 {
        let expected = ["X-Recif-User: alice", "x-recif-approver: true"];
        assert_eq!(reported(&mut signing, &approver).await, expected, "the first time and from memory");
    }
    let spoofed = "x-recif-approver: true\r\n";
    let named = reported(&mut signing, &format!("{spoofed}{}", token(&keys, "alice", -300))).await;
    assert_eq!(named, ["X-Recif-User: alice"]);
    assert!(reported(&mut signing, spoofed).await.is_empty());
    let mut keyless = TestProxy::start(&[]).await;
    let sent = format!("X-Recif-User: alice\r\n{spoofed}{approver}");
    assert!(!reported(&mut keyless, &sent).await.join("\n").to_lowercase().contains("x-recif-approver"));
}

#[tokio::test]
async fn what_is_left_of_budgets_arrives() {
    let keys = KeySet::generate().unwrap();
    let mut proxy = proxy(&keys, false).await;
    let left =
        ["x-recif-left: day=20784, all=5", "x-recif-left-cost: day=20784, all=7", "x-recif-prices: EUR, a/b 1 2 3 4"];
    let sent = format!("{}\r\n", left.join("\r\n"));
    assert_eq!(reported(&mut proxy, &sent).await, left);
    let named = reported(&mut proxy, &format!("{sent}{}", token(&keys, "alice", -300))).await;
    assert_eq!(named, [&left[..], &["X-Recif-User: alice"]].concat());
}

#[tokio::test]
async fn a_sidecar_without_keys_believes_a_name_but_not_that_a_request_came_by_a_gateway() {
    let mut proxy = TestProxy::start(&[]).await;
    let sent = "X-Recif-User: alice\r\nx-recif-via: g\r\n";
    assert_eq!(reported(&mut proxy, sent).await, ["X-Recif-User: alice"]);
}

#[tokio::test]
async fn where_identity_is_required_others_than_gateways_get_401() {
    let keys = KeySet::generate().unwrap();
    let mut proxy = proxy(&keys, true).await;
    let others = KeySet::generate().unwrap();
    for fields in ["X-Recif-User: admin\r\n", &token(&others, "admin", -300), "X-Recif-Caller: x\r\n"] {
        let answer = proxy.answer(&get(&format!("{fields}Connection: close\r\n"))).await;
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("x-recif-reason: identity\r\n"), "{answer}");
    }
    assert!(proxy.accepted.try_recv().is_err(), "nothing reached the workload");
    assert_eq!(reported(&mut proxy, &token(&keys, "alice", -300)).await, ["X-Recif-User: alice"]);
    let nameless =
        format!("X-Recif-Via: g\r\nX-Recif-Caller: {}\r\n", keys.token("agent/ns/a", None, unix_now() + 300));
    assert_eq!(reported(&mut proxy, &nameless).await, ["X-Recif-Via: g"], "let in by an anonymous path");
    for probe in ["/healthz", "/readyz", "/metrics", "/_recif/inflight"] {
        let request = format!("GET {probe} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        assert!(proxy.answer(request.as_bytes()).await.starts_with("HTTP/1.1 200 "), "{probe}");
    }
    let keyless = TestProxy::start(&[("RECIF_REQUIRE_IDENTITY", "true")]).await;
    let answer = keyless.answer(&get("Connection: close\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "without keys no caller is believed: {answer}");
}

#[tokio::test]
async fn no_more_than_256_tokens_are_remembered() {
    let keys = Arc::new(KeySet::generate().unwrap());
    let proxy = proxy(&keys, false).await;
    for number in 0..300 {
        let bytes = get(&token(&keys, &format!("user-{number}"), -300));
        let mut fields = http1::Fields::default();
        let head = http1::RequestHead::read(&bytes, &mut fields).unwrap();
        assert!(proxy.shared.callers.identify(&head, tokio::time::Instant::now()).is_ok());
    }
    assert_eq!(proxy.shared.callers.remembered(), 256);
}
