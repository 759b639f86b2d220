//! Tests of what agents report of calls that wait for a person.

use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{audit::AuditOutput, *};
use crate::admin::Admin;

const REQUEST: &[u8] = b"POST /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Returns what the operator hears of the workload's calls that wait.
async fn pending(gateway: &TestGateway) -> Value {
    let request = axum::http::Request::get("/_recif/demand").body(axum::body::Body::empty()).unwrap();
    let answer = Admin::new(gateway.shared.clone()).router().oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(answer.into_body(), 100_000).await.unwrap();
    let demand: Value = serde_json::from_slice(&body).unwrap();
    demand["workloads"][0]["pending"].clone()
}

#[tokio::test]
async fn what_waits_is_known_to_the_operator_and_a_decision_is_in_the_audit() {
    let (out, mut pod) = (AuditOutput::default(), TestPod::start().await);
    let gateway = TestGateway::with_audit(out.clone(), Auth::None { any_host: true }, &[], &[pod.address]).await;
    assert_eq!(pending(&gateway).await, Value::Null);
    let decision = "X-Recif-Approval: task=\"0a\", approved=\"1 2\", rejected=\"3\"";
    for (number, (fields, expected, approval)) in [
        (
            "x-recif-approvals: at=9, calls=2, since=1, until=5".to_owned(),
            json!({"at": 9, "calls": 2, "since": 1, "until": 5}),
            Value::Null,
        ),
        (
            format!("X-Recif-Approvals: at=10, calls=0\r\n{decision}"),
            json!({"at": 10, "calls": 0, "since": 0, "until": 0}),
            json!({"task": "0a", "ids": ["1", "2", "3"], "approved": ["1", "2"]}),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = gateway.send(REQUEST).await;
        let (mut io, _) = pod.next().await;
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n{fields}\r\n\r\n");
        io.write_all(answer.as_bytes()).await.unwrap();
        let (answer, _) = whole(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(!answer.to_ascii_lowercase().contains("x-recif-approval"), "{answer}");
        assert_eq!(pending(&gateway).await, expected);
        let line = out.lines(number + 1).await.remove(number);
        assert_eq!(line["approval"], approval, "{line}");
    }
}

#[tokio::test]
async fn what_waits_at_the_end_of_a_stream_is_known_by_its_trailer_which_no_client_gets() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let request = b"GET /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\n\r\n";
    let mut client = gateway.send(request).await;
    let (mut io, _) = pod.next().await;
    let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Own: 7\r\n\
        X-Recif-Approvals: at=9, calls=1, since=1, until=5\r\n\r\n";
    io.write_all(answer).await.unwrap();
    read_head(&mut client).await;
    let body = "2\r\nok\r\n0\r\nX-Own: 7\r\n\r\n";
    assert_eq!(read_exactly(&mut client, body.len()).await, body);
    assert_eq!(pending(&gateway).await, json!({"at": 9, "calls": 1, "since": 1, "until": 5}));
}
