//! Tests `recif-proxy mcp-bridge` with clients of the older protocol era: sessions.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test program, which needs a part of what is shared"
)]

mod bridge;

use bridge::{Bridge, EventStream, request, wait_until_gone};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn each_session_has_a_child_of_its_own_that_ends_with_it() {
    let bridge = Bridge::start(&[]).await;
    let (a, b) = (bridge.session().await, bridge.session().await);
    let (first, second) = (a.pid().await, b.pid().await);
    assert_ne!(first, second);
    assert_eq!(a.pid().await, first);
    let helper = a.query("helper", json!({})).await["result"]["pid"].as_u64().unwrap();
    assert_eq!(a.delete().await, 200);
    let answer = a.post(request(7, "pid", json!({}))).await;
    assert_eq!(answer.status(), 404);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32001)));
    wait_until_gone(first).await;
    wait_until_gone(helper).await;
    assert_eq!(b.pid().await, second, "the other goes on");
}

#[tokio::test]
async fn a_message_passes_through_as_it_is() {
    let bridge = Bridge::start(&[]).await;
    let session = bridge.session().await;
    let text = "{\n \"jsonrpc\": \"2.0\",\r\n \"id\": \"\\u00e9\",\n \"method\": \"echo\", \"params\": {\"b\": 1e2, \"a\": \"x\\ny\"}}";
    let answer =
        session.request(Method::POST).header("content-type", "application/json").body(text).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": "é", "result": {"a": "x\ny", "b": 100.0}}));
    let answer = session.query("pretty", json!({})).await;
    assert_eq!(answer["result"], json!({"pretty": [1, {"a": "b\nc"}]}));
    assert_eq!(session.query("no/such", json!({})).await["error"]["code"], -32601);
}

#[tokio::test]
async fn what_answers_nothing_goes_to_the_stream_that_listens() {
    let bridge = Bridge::start(&[]).await;
    let session = bridge.session().await;
    let reported = |number: i64| json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}});
    // No stream is open: the message is buffered.
    for _ in 0..2 {
        let tell = json!({"jsonrpc": "2.0", "method": "notifications/tell", "params": {"level": "info", "data": 0}});
        assert_eq!(session.post(tell).await.status(), 202);
    }
    let mut events = EventStream::of(session.request(Method::GET).send().await.unwrap());
    for _ in 0..2 {
        assert_eq!(events.next().await.unwrap(), reported(0));
    }
    assert_eq!(session.query("tell", json!({"count": 2})).await["result"], json!({}));
    for number in 0..2 {
        assert_eq!(events.next().await.unwrap(), reported(number));
    }
    // The child sends a request to its client, which responds by another POST.
    let asking = session.query("ask", json!({"question": "how?"}));
    let answering = async {
        let asked = events.next().await.unwrap();
        assert_eq!(
            (&asked["method"], &asked["params"]["question"]),
            (&json!("sampling/createMessage"), &json!("how?"))
        );
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"so": true}});
        assert_eq!(session.post(answer).await.status(), 202);
    };
    let (answer, ()) = tokio::join!(asking, answering);
    assert_eq!(answer["result"], json!({"so": true}));
    session.delete().await;
    assert_eq!(events.next().await, None, "it ends well");
}

#[tokio::test]
async fn without_a_stream_that_listens_it_goes_before_the_answer() {
    let bridge = Bridge::start(&[]).await;
    let session = bridge.session().await;
    let all = EventStream::of(session.post(request(1, "tell", json!({"count": 3}))).await).rest().await;
    assert_eq!(all.len(), 4);
    assert_eq!((&all[2]["params"]["data"], &all[3]["id"]), (&json!(2), &json!(1)));
    // Progress is sent on the stream of its request, even if another stream is open.
    let _listening = session.request(Method::GET).send().await.unwrap();
    let params = json!({"count": 2, "_meta": {"progressToken": "t"}});
    let all = EventStream::of(session.post(request("p", "progress", params)).await).rest().await;
    assert_eq!((all.len(), &all[1]["params"]["progress"], &all[2]["id"]), (3, &json!(1), &json!("p")));
    // A client that accepts only JSON documents gets one.
    let asked = request(1, "tell", json!({"count": 3}));
    let answer = session.request(Method::POST).header("accept", "application/json").json(&asked).send().await.unwrap();
    assert_eq!(answer.json::<Value>().await.unwrap()["result"], json!({}));
}

#[tokio::test]
async fn a_child_that_dies_fails_its_requests_and_its_session() {
    let bridge = Bridge::start(&["--max-sessions", "1"]).await;
    let session = bridge.session().await;
    let slow = session.post(request("slow", "sleep", json!({"seconds": 60})));
    let dying = async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        session.post(request("last", "die", json!({}))).await
    };
    let (slow, last) = tokio::join!(slow, dying);
    for (id, answer) in [("slow", slow), ("last", last)] {
        let answer: Value = answer.json().await.unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32000)), "{answer}");
    }
    assert_eq!(session.post(request(1, "pid", json!({}))).await.status(), 404);
    // The slot is free for another session.
    let waiting = async {
        while bridge.post(&request(0, "initialize", json!({}))).send().await.unwrap().status() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(bridge::SOON, waiting).await.unwrap();
    assert_eq!(bridge.probe("/readyz").await, 200, "a session's child is no matter of the Pod");
}

#[tokio::test]
async fn an_opening_that_fails_leaves_no_session() {
    let bridge = Bridge::start(&["--max-sessions", "1"]).await;
    for _ in 0..3 {
        let asked = bridge.post(&request(0, "initialize", json!({"refuse": true})));
        let answer = asked.send().await.unwrap();
        let full = answer.status() == 503;
        assert!(!answer.headers().contains_key("mcp-session-id"));
        let answer: Value = answer.json().await.unwrap();
        assert!(full || answer["error"]["message"] == "refused", "{answer}");
    }
    let mut dying = Bridge::of(&[], &["sh", "-c", "echo it is broken >&2; exit 4"]).await;
    let answer = dying.post(&request(0, "initialize", json!({}))).send().await.unwrap();
    assert!(!answer.headers().contains_key("mcp-session-id"));
    assert_eq!(answer.json::<Value>().await.unwrap()["error"]["code"], -32000);
    dying.wait_for_log("it is broken").await;
    dying.wait_for_log("with status 4").await;
}

#[tokio::test]
async fn there_are_no_more_sessions_than_allowed() {
    let bridge = Bridge::start(&["--max-sessions", "2"]).await;
    let first = bridge.session().await;
    let _second = bridge.session().await;
    let refused = bridge.post(&request(0, "initialize", json!({}))).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(refused.headers()["x-recif-reason"], "no-session", "upon which a gateway asks another Pod");
    let pid = first.pid().await;
    first.delete().await;
    wait_until_gone(pid).await;
    bridge.session().await;
}

#[tokio::test]
async fn a_child_that_hears_nothing_any_more_is_like_one_that_died() {
    let bridge = Bridge::start(&[]).await;
    let session = bridge.session().await;
    let pid = session.pid().await;
    assert_eq!(session.query("deaf", json!({})).await["result"], json!({}));
    let failed = session.query("echo", json!({})).await;
    assert_eq!(failed["error"]["code"], -32000, "{failed}");
    wait_until_gone(pid).await;
    assert_eq!(session.post(request(2, "echo", json!({}))).await.status(), 404);
    assert_eq!(bridge.session().await.query("echo", json!({"a": 1})).await["result"], json!({"a": 1}));
}

#[tokio::test]
async fn a_request_of_a_child_that_is_too_large_fails_at_the_child_and_no_request_of_the_client() {
    let bridge = Bridge::start(&[]).await;
    let session = bridge.session().await;
    assert_eq!(session.query("huge_ask", json!({"mib": 17})).await["result"], json!({"told": true}));
    assert_eq!(bridge.query(1, "huge_ask", json!({"mib": 17})).await["result"], json!({"told": true}));
}

#[tokio::test]
async fn a_session_without_anything_to_do_ends() {
    let bridge = Bridge::start(&["--idle", "2s"]).await;
    let (idle, listening, busy) = (bridge.session().await, bridge.session().await, bridge.session().await);
    let pid = idle.pid().await;
    let _open = listening.request(Method::GET).send().await.unwrap();
    assert_eq!(busy.query("sleep", json!({"seconds": 3})).await["result"], json!({}), "a request is something to do");
    wait_until_gone(pid).await;
    assert_eq!(idle.post(request(1, "pid", json!({}))).await.status(), 404);
    assert_eq!(listening.post(request(1, "pid", json!({}))).await.status(), 200, "an open stream is something to do");
}

#[tokio::test]
async fn a_request_id_is_used_once_at_a_time() {
    let bridge = Bridge::start(&[]).await;
    let session = bridge.session().await;
    let slow = session.post(request(5, "sleep", json!({"seconds": 1})));
    let again = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        session.post(request(5, "pid", json!({}))).await.status()
    };
    let (slow, again) = tokio::join!(slow, again);
    assert_eq!((slow.status().as_u16(), again.as_u16()), (200, 400));
}

#[tokio::test]
async fn a_request_that_its_client_cancels_ends_and_its_child_is_told() {
    let bridge = Bridge::start(&[]).await;
    let session = bridge.session().await;
    let slow = session.post(request(5, "sleep", json!({"seconds": 60})));
    let cancelling = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
        assert_eq!(session.post(cancel).await.status(), 202);
    };
    let (slow, ()) = tokio::join!(slow, cancelling);
    assert!(EventStream::of(slow).rest().await.is_empty());
    assert_eq!(session.query("cancelled", json!({})).await["result"]["ids"], json!([5]));
}
