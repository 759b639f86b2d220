//! Tests `recif-proxy mcp-bridge` with clients of the newer protocol era: one child for all clients, and no sessions.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test program, which needs a part of what is shared"
)]

mod bridge;

use std::time::Duration;

use bridge::{Bridge, EventStream, SOON, request, wait_until_cancelled, wait_until_gone};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn all_requests_share_one_child_and_keep_their_ids() {
    let bridge = Bridge::start(&[]).await;
    let pid = bridge.query(1, "pid", json!({})).await;
    assert_eq!(bridge.query("1", "pid", json!({})).await["result"], pid["result"]);
    let asks = (0..40).map(|number| bridge.query(number % 2, "echo", json!({"number": number})));
    for (number, answer) in futures::future::join_all(asks).await.into_iter().enumerate() {
        assert_eq!((&answer["id"], &answer["result"]["number"]), (&json!(number % 2), &json!(number)), "{answer}");
    }
    let params = json!({"count": 2, "_meta": {"progressToken": 1}});
    let asks = (0..2).map(|_| async {
        EventStream::of(bridge.modern(9, "progress", params.clone()).send().await.unwrap()).rest().await
    });
    for all in futures::future::join_all(asks).await {
        let tokens: Vec<_> = all.iter().map(|message| &message["params"]["progressToken"]).collect();
        assert_eq!((tokens, &all[2]["id"]), (vec![&json!(1), &json!(1), &Value::Null], &json!(9)), "{all:?}");
    }
}

#[tokio::test]
async fn what_the_child_says_of_itself_is_passed_on() {
    let bridge = Bridge::start(&[]).await;
    let answer = bridge.modern(1, "server/discover", json!({})).send().await.unwrap();
    assert!(!answer.headers().contains_key("mcp-session-id"));
    assert_eq!(answer.json::<Value>().await.unwrap()["result"]["supportedVersions"], json!(["2026-07-28"]));
    let answer = bridge.modern("x", "no/such", json!({})).send().await.unwrap();
    assert_eq!(answer.status(), 404, "as the specification says of unknown methods");
    let answer: Value = answer.json().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("x"), &json!(-32601)));
}

#[tokio::test]
async fn headers_that_disagree_with_the_body_are_refused() {
    let bridge = Bridge::start(&[]).await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let call = request(3, "tools/call", json!({"name": "a", "_meta": meta}));
    for headers in [
        &[][..],
        &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call")],
        &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list"), ("mcp-name", "a")],
        &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "b")],
        &[("mcp-protocol-version", "2027-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "a")],
        &[("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/call"), ("mcp-name", "a")],
    ] {
        let mut asked = bridge.post(&call);
        for (name, value) in headers {
            asked = asked.header(*name, *value);
        }
        let answer = asked.send().await.unwrap();
        assert_eq!(answer.status(), 400, "{headers:?}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(3), &json!(-32020)), "{headers:?}");
    }
    let bare = request(3, "tools/list", json!({}));
    let answer = bridge.post(&bare).header("mcp-protocol-version", "2026-07-28").send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.json::<Value>().await.unwrap()["error"]["code"]),
        (400, &json!(-32602))
    );
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let asked = bridge.request(method).header("mcp-protocol-version", "2026-07-28").header("mcp-session-id", "x");
        let answer = asked.send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["allow"].to_str().unwrap()), (405, "POST"));
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request_and_no_other() {
    let bridge = Bridge::start(&[]).await;
    let slow = bridge.modern(1, "sleep", json!({"seconds": 60})).send();
    assert!(timeout(Duration::from_millis(300), slow).await.is_err(), "it is left");
    wait_until_cancelled(&bridge, 1).await;
    // A client cannot cancel the request of another client.
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    let answer = bridge.post(&cancel).header("mcp-protocol-version", "2026-07-28").send().await.unwrap();
    assert_eq!(answer.status(), 202);
    assert_eq!(bridge.query(1, "cancelled", json!({})).await["result"]["ids"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_subscription_is_known_by_its_clients_name() {
    let bridge = Bridge::start(&[]).await;
    let key = "io.modelcontextprotocol/subscriptionId";
    let (mut a, mut b) = {
        let listen = || bridge.modern("mine", "subscriptions/listen", json!({"notifications": {}})).send();
        (EventStream::of(listen().await.unwrap()), EventStream::of(listen().await.unwrap()))
    };
    for events in [&mut a, &mut b] {
        assert_eq!(events.next().await.unwrap()["params"]["_meta"][key], "mine");
    }
    let ended = bridge.modern("other", "subscriptions/listen", json!({"ends": true})).send().await.unwrap();
    let all = EventStream::of(ended).rest().await;
    assert_eq!((&all[1]["id"], &all[1]["result"]["_meta"][key]), (&json!("other"), &json!("other")));
}

#[tokio::test]
async fn a_child_that_dies_fails_what_is_in_flight_and_another_takes_its_place() {
    let bridge = Bridge::start(&[]).await;
    assert_eq!(bridge.probe("/readyz").await, 200, "it needs no child before it is asked");
    let pid = bridge.query(1, "pid", json!({})).await["result"]["pid"].as_u64().unwrap();
    let slow = bridge.query("slow", "sleep", json!({"seconds": 60}));
    let dying = async {
        sleep(Duration::from_millis(100)).await;
        bridge.query("last", "die", json!({})).await
    };
    let (slow, last) = tokio::join!(slow, dying);
    for (id, answer) in [("slow", slow), ("last", last)] {
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32000)), "{answer}");
    }
    assert_eq!((bridge.probe("/readyz").await, bridge.probe("/livez").await), (503, 200));
    let refused = bridge.modern(1, "pid", json!({})).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    bridge.wait_for_status("/readyz", 200).await;
    assert_ne!(bridge.query(1, "pid", json!({})).await["result"]["pid"].as_u64().unwrap(), pid);
}

#[tokio::test]
async fn a_child_that_hears_nothing_any_more_is_replaced() {
    let bridge = Bridge::start(&[]).await;
    assert_eq!(bridge.query(1, "deaf", json!({})).await["result"], json!({}));
    let failed = bridge.query(2, "echo", json!({})).await;
    assert_eq!(failed["error"]["code"], -32000, "{failed}");
    bridge.wait_for_status("/readyz", 503).await;
    bridge.wait_for_status("/readyz", 200).await;
    assert!(bridge.query(3, "pid", json!({})).await["result"]["pid"].is_u64());
}

#[tokio::test]
async fn whatever_a_child_writes_the_bridge_goes_on() {
    let bridge = Bridge::start(&[]).await;
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", bridge.process.id().unwrap())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_owned();
        line.trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    assert_eq!(bridge.query(1, "noise", json!({})).await["result"], json!({}));
    assert_eq!(bridge.query(2, "pretty", json!({})).await["result"]["pretty"][0], 1);
    let before = memory();
    let answer = bridge.query("big", "huge", json!({"mib": 64})).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("big"), &json!(-32603)));
    let after = memory();
    assert!(after - before < 40, "{before} MiB before, {after} MiB after");
    let answer = bridge.query("big", "huge", json!({"mib": 8})).await;
    assert_eq!(answer["result"]["text"].as_str().unwrap().len(), 8 << 20);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_no_other() {
    let bridge = Bridge::start(&[]).await;
    let params = json!({"count": 64, "size": 1 << 20, "_meta": {"progressToken": 1}});
    let mut stuck = bridge.modern(1, "progress", params).send().await.unwrap();
    let answer = timeout(SOON, bridge.query(2, "echo", json!({"a": 1}))).await.unwrap();
    assert_eq!(answer["result"]["a"], 1);
    // The stream is cut off, so it does not look complete, and its request is cancelled.
    wait_until_cancelled(&bridge, 1).await;
    let reading = async {
        while stuck.chunk().await?.is_some() {}
        Ok::<_, reqwest::Error>(())
    };
    assert!(timeout(SOON, reading).await.unwrap().is_err());
}

#[tokio::test]
async fn what_orphans_leave_is_cleared_away() {
    let bridge = Bridge::start(&[]).await;
    let pid = bridge.query(1, "orphan", json!({})).await["result"]["pid"].as_u64().unwrap();
    wait_until_gone(pid).await;
}
