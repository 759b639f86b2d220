//! Tests of what requests at the root may hold, and what they may ask of the API server.

use super::*;
use crate::{
    clients::ClientId,
    root::{MAX_CALLS, MAX_LARGE, MAX_LARGE_PER_CLIENT, MAX_LISTS},
};

const BOB: &str = "Authorization: Bearer good-bob\r\n";

/// Returns the beginning of a request whose body names no model yet, and of which more than every client may send is here.
fn half(fields: &str) -> String {
    let body = format!(r#"{{"input": "{}"#, "x".repeat(100_000));
    format!("POST /v1/responses HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n{fields}\r\n{body}")
}

fn large_call() -> String {
    let arguments = json!({"message": "x".repeat(200_000)});
    let params = json!({"name": "ns_a", "arguments": arguments});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    request("POST", "/mcp", "", &message.to_string())
}

impl TestGateway {
    /// Returns the number of large bodies that are held.
    fn large(&self) -> usize {
        MAX_LARGE - self.shared.root.large_bodies.available_permits()
    }

    /// Sends half a request, and returns the status of the refusal.
    async fn refusal(&self, fields: &str) -> String {
        let mut client = self.send(half(fields).as_bytes()).await;
        whole(&mut client).await.0[9..12].to_owned()
    }
}

#[tokio::test]
async fn a_large_body_is_read_of_those_who_may_call_something() {
    let gateway = TestGateway::with_auth(gate().1, &[], &[]).await;
    for fields in ["", "Authorization: Bearer bad\r\n"] {
        assert_eq!(gateway.refusal(fields).await, "401", "{fields}");
    }
    assert_eq!(gateway.large(), 0);
    let _known = gateway.send(half(ALICE).as_bytes()).await;
    until(|| gateway.large() == 1).await;
    gateway.agent("other", "open", Object { anonymous_paths: Box::new(["/v1/*".into()]), ..object() });
    let _anonymous = gateway.send(half("").as_bytes()).await;
    until(|| gateway.large() == 2).await;
}

#[tokio::test]
async fn one_client_holds_a_share_of_the_large_bodies() {
    let gateway = TestGateway::with_auth(gate().1, &[], &[]).await;
    let share = MAX_LARGE_PER_CLIENT as usize;
    let mut held = Vec::new();
    for number in 1..=share {
        held.push(gateway.send(half(ALICE).as_bytes()).await);
        until(|| gateway.large() == number).await;
    }
    assert_eq!(gateway.refusal(ALICE).await, "503");
    let _other = gateway.send(half(BOB).as_bytes()).await;
    until(|| gateway.large() == share + 1).await;
    drop(held);
    until(|| gateway.large() == 1).await;
}

#[tokio::test]
async fn a_large_body_is_counted_until_its_answer_begins() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[]).await;
    let body = json!({"input": "x".repeat(200_000), "model": "ns/a"}).to_string();
    let mut client = gateway.send(request("POST", "/v1/responses", "", &body).as_bytes()).await;
    gateway.until_waiting(1).await;
    assert_eq!(gateway.large(), 1, "the body is in memory while its request waits");
    gateway.pods(&[(pod.address, EndpointState::Ready)]);
    let (mut io, _) = pod.next().await;
    read_exactly(&mut io, body.len()).await;
    // The answer is a stream, which may last.
    let begin = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nok";
    io.write_all(begin).await.unwrap();
    until(|| gateway.large() == 0).await;
    io.write_all(b"ok").await.unwrap();
    assert_eq!(whole(&mut client).await.1, "okok");
}

#[tokio::test]
async fn a_call_of_a_tool_is_counted_until_it_is_answered() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let calls = || MAX_CALLS - gateway.shared.root.calls.available_permits();
    let mut client = gateway.send(large_call().as_bytes()).await;
    let (mut io, _) = pod.next().await;
    assert_eq!((gateway.large(), calls()), (1, 1));
    read_exactly(&mut io, 200_000).await;
    io.write_all(SSE).await.unwrap();
    assert!(whole(&mut client).await.1.contains("echo: hi"));
    until(|| (gateway.large(), calls()) == (0, 0)).await;

    let all = gateway.shared.root.calls.try_acquire_many(u32::try_from(MAX_CALLS).unwrap()).unwrap();
    let mut client = gateway.send(large_call().as_bytes()).await;
    let (head, body) = whole(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 503 ") && field(&head, "Retry-After") == Some("1"), "{head}");
    assert!(body.contains("\"code\":-32000"), "{body}");
    assert_eq!(gateway.rpc("", "tools/list", json!({})).await.0, 200, "lists are no calls");
    drop(all);
}

#[tokio::test]
async fn a_list_goes_on_until_it_has_what_the_caller_may_call() {
    let gateway = TestGateway::with_auth(gate().1, &[], &[]).await;
    for number in 0..1100 {
        gateway.agent("many", &format!("b{number}"), object());
    }
    assert_eq!(names(&gateway.ask("GET", "/v1/models", ALICE, "").await.1["data"]), ["ns/a"]);
}

#[tokio::test]
async fn long_lists_take_turns_and_count_as_requests_of_their_client() {
    let gateway = TestGateway::with_auth(gate().1, &["--max-in-flight-per-client", "1"], &[]).await;
    for number in 0..50 {
        gateway.agent("many", &format!("b{number}"), object());
    }
    let is_free = || gateway.shared.clients.acquire(|| ClientId::User("alice".into())).is_some();
    let turns = gateway.shared.root.lists.try_acquire_many(u32::try_from(MAX_LISTS).unwrap()).unwrap();
    let waiting = gateway.send(request("GET", "/v1/models", ALICE, "").as_bytes()).await;
    until(|| !is_free()).await;
    let (status, refusal) = gateway.ask("GET", "/v1/models", ALICE, "").await;
    assert_eq!((status, &refusal["error"]["code"]), (429, &json!("too-many-requests")), "{refusal}");
    assert_eq!(gateway.rpc(ALICE, "tools/list", json!({})).await.0, 429);
    assert_eq!(gateway.ask("GET", "/v1/models/ns%2Fa", BOB, "").await.0, 404, "one agent needs no turn");
    // Who has gone does not wait any more.
    drop(waiting);
    until(is_free).await;
    drop(turns);
    assert_eq!(names(&gateway.ask("GET", "/v1/models", ALICE, "").await.1["data"]), ["ns/a"]);
}
