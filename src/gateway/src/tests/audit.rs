//! Tests of the audit: what the line of a request says, and that no request waits for it.

use std::{
    io::{self, Write},
    sync::Mutex,
};

use crds::usage::ModelPrices;
use http1::{Fields, RequestHead};
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{CostBudgets, TokenBudgets, audit::AuditMode, auth::tests::gate, workload::WorkloadState};

/// Output whose lines the test reads. It is stuck while the test holds its lock.
#[derive(Debug, Clone, Default)]
pub(super) struct AuditOutput(Arc<Mutex<Vec<u8>>>);

impl Write for AuditOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AuditOutput {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits for so many lines.
    pub(super) async fn lines(&self, count: usize) -> Vec<Value> {
        until(|| self.text().lines().count() >= count).await;
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Returns a request of the owner of a token, on a connection of its own.
fn request(token: &str) -> Vec<u8> {
    let credential = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    format!("GET /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{credential}\r\n").into_bytes()
}

#[tokio::test]
async fn a_line_says_who_called_and_how_it_ended_and_nothing_that_was_said() {
    let (out, mut pod) = (AuditOutput::default(), TestPod::start().await);
    let gateway = TestGateway::with_audit(out.clone(), gate().1, &[], &[pod.address]).await;
    let canaries = b"POST /v1/agents/ns/a/canary-path?canary-query HTTP/1.1\r\nHost: h\r\nX-Own: canary-header\r\n\
        Authorization: Bearer good-alice\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
        Content-Length: 13\r\n\r\ncanary-prompt";
    let mut client = gateway.send(canaries).await;
    let (mut io, _) = pod.next().await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nX-Own: canary-header\r\n\
        x-recif-usage: in=7, out=5, calls=1, model=\"stub/echo\"\r\n\r\ncanary-answer";
    io.write_all(answer).await.unwrap();
    whole(&mut client).await;

    let mut line = out.lines(1).await.remove(0);
    let text = out.text();
    assert!(!text.contains("canary") && !text.contains("good-alice"), "{text}");
    let line = line.as_object_mut().unwrap();
    let at = line.remove("at").unwrap();
    assert!(at.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{at}");
    for time in ["ms", "ttfb_ms"] {
        assert!(line.remove(time).unwrap().is_u64(), "{time}");
    }
    let expected = json!({
        "target": "audit", "run": "4bf92f3577b34da6a3ce929d0e0e4736", "caller": "alice", "groups": ["g"],
        "client": "127.0.0.1", "kind": "Agent", "namespace": "ns", "name": "a", "method": "POST", "code": 200,
        "verdict": "allowed", "bytes_in": 13, "bytes_out": 13, "queue_ms": 0, "pod": "127.0.0.1",
        "tokens": {"in": 7, "out": 5}, "model": "stub/echo", "aborted": false
    });
    assert_eq!(Value::Object(line.clone()), expected);
}

#[tokio::test]
async fn the_trace_that_a_pod_began_is_in_the_line_if_it_is_one() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (header, expected) in [(trace, json!(trace)), ("not-the-id-of-a-trace-but-as-long", Value::Null)] {
        let (out, mut pod) = (AuditOutput::default(), TestPod::start().await);
        let gateway = TestGateway::with_audit(out.clone(), gate().1, &[], &[pod.address]).await;
        let mut client = gateway.send(&request("good-alice")).await;
        let (mut io, _) = pod.next().await;
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-recif-run: {header}\r\n\r\n");
        io.write_all(answer.as_bytes()).await.unwrap();
        whole(&mut client).await;
        assert_eq!(out.lines(1).await.remove(0)["run"], expected);
    }
}

#[tokio::test]
async fn what_a_stream_used_is_known_by_its_trailer_which_no_client_gets() {
    let (out, mut pod) = (AuditOutput::default(), TestPod::start().await);
    let gateway = TestGateway::with_audit(out.clone(), Auth::None { any_host: true }, &[], &[pod.address]).await;
    for (fields, passed) in [("", ""), ("TE: trailers\r\nConnection: TE\r\n", "X-Cost: 7\r\n")] {
        let request = format!("GET /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut client = gateway.send(request.as_bytes()).await;
        let (mut io, _) = pod.next().await;
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Cost: 7\r\n\
            X-Recif-Usage: in=7, out=5, cr=3, model=\"stub/echo\"\r\n\r\n";
        io.write_all(answer).await.unwrap();
        read_head(&mut client).await;
        let body = format!("2\r\nok\r\n0\r\n{passed}\r\n");
        assert_eq!(read_exactly(&mut client, body.len()).await, body);
    }
    let line = out.lines(2).await.remove(1);
    assert_eq!((&line["tokens"], &line["model"]), (&json!({"in": 7, "out": 5}), &json!("stub/echo")), "{line}");
    let metrics = gateway.shared.metrics.encode().unwrap();
    let labels = r#"kind="Agent",namespace="ns",name="a",model="stub/echo",direction="cache_read""#;
    assert!(metrics.contains(&format!("recif_gateway_tokens_total{{{labels}}} 6\n")), "{metrics}");
}

#[tokio::test]
async fn what_a_request_cost_is_in_its_line_where_the_workload_has_a_budget_of_cost() {
    let (out, mut pod) = (AuditOutput::default(), TestPod::start().await);
    let gateway = TestGateway::with_audit(out.clone(), Auth::None { any_host: true }, &[], &[pod.address]).await;
    let budgets = TokenBudgets { per_workload: Some(1_000_000_000), per_caller: None };
    let prices = ModelPrices::read("EUR, openai/gpt-5 3000000 300000 0 15000000").unwrap();
    for (number, cost, expected) in [
        (0, None, Value::Null),
        (1, Some(CostBudgets::new(budgets, prices)), json!({"amount": "0.00234", "currency": "EUR"})),
    ] {
        gateway.object(Some(Object { cost, ..object() }));
        let mut client = gateway.send(&request("")).await;
        let (mut io, _) = pod.next().await;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\
            x-recif-usage: in=1000, cr=800, out=100, model=\"openai/gpt-5\"\r\n\r\n";
        io.write_all(answer).await.unwrap();
        whole(&mut client).await;
        assert_eq!(out.lines(number + 1).await.remove(number)["cost"], expected);
    }
}

#[tokio::test]
async fn a_refused_request_has_a_line_with_the_reason_and_the_caller_as_far_as_known() {
    let out = AuditOutput::default();
    let gateway = TestGateway::with_audit(out.clone(), gate().1, &["--audit", "refused"], &[]).await;
    gateway.no_pod(false);
    for (token, code, verdict, reason, caller) in [
        ("", 401, "denied", "unauthenticated", Value::Null),
        ("good-bob", 403, "denied", "forbidden", json!("bob")),
        ("good-alice", 503, "refused", "unavailable", json!("alice")),
    ] {
        let before = out.text().lines().count();
        gateway.answer(&request(token)).await;
        let line = out.lines(before + 1).await.remove(before);
        let said = [&line["code"], &line["verdict"], &line["reason"], &line["caller"], &line["aborted"]];
        assert_eq!(said, [&json!(code), &json!(verdict), &json!(reason), &caller, &json!(false)], "{line}");
    }
    gateway.answer(b"GET /v1/agents/ns/none/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    gateway.shared.log.flush().await;
    assert_eq!(out.text().lines().count(), 3, "a name that a client made up is in no line");
}

#[tokio::test]
async fn lines_are_only_of_the_requests_that_the_flag_names() {
    for (mode, expected) in [("all", 2), ("refused", 1), ("off", 0)] {
        let (out, mut pod) = (AuditOutput::default(), TestPod::start().await);
        let gateway = TestGateway::with_audit(out.clone(), gate().1, &["--audit", mode], &[pod.address]).await;
        let mut client = gateway.send(&request("good-alice")).await;
        let (mut io, _) = pod.next().await;
        io.write_all(OK).await.unwrap();
        whole(&mut client).await;
        gateway.answer(&request("bad")).await;
        out.lines(expected).await;
        gateway.shared.log.flush().await;
        assert_eq!(out.text().lines().count(), expected, "{mode}: {}", out.text());
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_aborted() {
    let (out, mut pod) = (AuditOutput::default(), TestPod::start().await);
    let gateway = TestGateway::with_audit(out.clone(), Auth::None { any_host: true }, &[], &[pod.address]).await;
    let _client = gateway.send(GET).await;
    let (mut io, _) = pod.next().await;
    io.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
    drop(io);
    let line = out.lines(1).await.remove(0);
    let said = [&line["code"], &line["verdict"], &line["bytes_out"], &line["aborted"]];
    assert_eq!(said, [&json!(200), &json!("allowed"), &json!(4), &json!(true)], "{line}");
}

#[tokio::test]
async fn while_the_output_is_stuck_lines_are_dropped_and_counted_and_no_request_waits() {
    let (out, dropped) = (AuditOutput::default(), Counter::default());
    let audit = AuditLog::start(AuditMode::All, out.clone(), dropped.clone()).unwrap();
    let traces = RequestTraces::start(Tracing::off(), Sampler::default(), SpanCounters::default()).unwrap();
    let log = RequestLog { audit, traces };
    let workload = WorkloadState::new(RoutedKind::Agent, "ns", "a", Clock::new());
    let mut fields = Fields::default();
    let head = RequestHead::read(GET, &mut fields).unwrap();
    let sent = 20_000;
    {
        let _stuck = out.0.lock().unwrap();
        for _ in 0..sent {
            drop(log.begin(Some(&workload), &head, Instant::now(), || [127, 0, 0, 1].into()));
        }
        assert!(dropped.get() > sent / 2, "{}", dropped.get());
    }
    until(|| out.text().lines().count() as u64 + dropped.get() == sent).await;
    assert!(out.text().lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}
