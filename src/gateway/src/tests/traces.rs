//! Tests of traces: the context that a Pod gets, and the spans that a collector gets.

use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use telemetry::{
    TelemetryConfig, TraceContext,
    otlp::{Span, any_value, decode_traces, span, status, text_attribute},
};

use super::{audit::AuditOutput, *};
use crate::auth::tests::gate;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Collector that keeps the spans that it gets, and the audit of its gateway.
#[derive(Clone, Default)]
struct SpanCollector(Arc<Mutex<Vec<Span>>>, AuditOutput);

impl SpanCollector {
    /// Starts the collector, and a gateway that sends it the spans that this sampler selects.
    async fn gateway(&self, sampler: &str, auth: Auth, flags: &[&str], pods: &[SocketAddr]) -> TestGateway {
        // Fails only if another test has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().route("/v1/traces", post(keep)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let lookup = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
            "OTEL_EXPORTER_OTLP_COMPRESSION" => Some("none".to_owned()),
            "OTEL_TRACES_SAMPLER" => Some(sampler.to_owned()),
            _ => None,
        };
        let config = TelemetryConfig::read(&lookup).unwrap();
        let counters = SpanCounters::default();
        let tracing = Tracing::start(&config, &[], counters.clone()).unwrap();
        let traces = RequestTraces::start(tracing, config.sampler, counters).unwrap();
        TestGateway::with_log(self.1.clone(), traces, auth, flags, pods).await
    }

    /// Returns the spans of all requests to this gateway that have ended.
    async fn spans(&self, gateway: &TestGateway) -> Vec<Span> {
        gateway.until_in_flight(0).await;
        gateway.shared.log.flush().await;
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

async fn keep(State(collector): State<SpanCollector>, body: Bytes) {
    let request = decode_traces("application/x-protobuf", &body).unwrap();
    let scopes = request.resource_spans.into_iter().flat_map(|process| process.scope_spans);
    collector.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
}

/// Starts a Pod that has no room for a request while `refusals`, which Pods may share, is more than 0, and counts it down.
async fn full_pod(refusals: Arc<AtomicU32>) -> SocketAddr {
    let mut pod = TestPod::start().await;
    let address = pod.address;
    tokio::spawn(async move {
        while let Some(mut io) = pod.accepted.recv().await {
            let refusals = refusals.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while io.read(&mut bytes).await.is_ok_and(|length| length > 0) {
                    let left = refusals.load(Relaxed);
                    refusals.store(left.saturating_sub(1), Relaxed);
                    io.write_all(if left > 0 { FULL } else { OK }).await.unwrap();
                }
            });
        }
    });
    address
}

/// Returns a request for this path, with these further fields.
fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET /v1/agents/ns/a{path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n").into_bytes()
}

/// Returns the context that a Pod got.
fn context(head: &str) -> Option<TraceContext> {
    field(head, "traceparent").map(|parent| TraceContext::parse(parent, None).unwrap())
}

fn number(span: &Span, name: &str) -> Option<i64> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::IntValue(number) => Some(*number),
        _ => None,
    }
}

#[tokio::test]
async fn the_trace_of_an_admitted_caller_is_continued_and_the_span_holds_nothing_that_was_said() {
    let (collector, mut pod) = (SpanCollector::default(), TestPod::start().await);
    let gateway = collector.gateway("parentbased_always_off", gate().1, &[], &[pod.address]).await;
    let request = format!(
        "POST /v1/agents/ns/a/chat?canary-query HTTP/1.1\r\nHost: h\r\nX-Own: canary-header\r\n\
         Authorization: Bearer good-alice\r\ntraceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: v=1\r\n\
         Content-Length: 13\r\n\r\ncanary-prompt"
    );
    let mut client = gateway.send(request.as_bytes()).await;
    let (mut io, head) = pod.next().await;
    let sent = context(&head).unwrap();
    assert_eq!((sent.trace_text().as_str(), sent.is_sampled, field(&head, "tracestate")), (TRACE, true, Some("v=1")));
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nx-recif-usage: in=7, out=5, rs=2\r\n\r\ncanary-answer";
    io.write_all(answer).await.unwrap();
    whole(&mut client).await;

    let spans = collector.spans(&gateway).await;
    let [span] = &spans[..] else { panic!("{spans:?}") };
    let ids = [&span.trace_id, &span.span_id, &span.parent_span_id].map(hex::encode);
    assert_eq!(ids, [TRACE.to_owned(), sent.span_text(), PARENT.to_owned()]);
    assert_eq!((span.name.as_str(), span.kind()), ("POST /v1/agents/{namespace}/{name}", span::SpanKind::Server));
    for (name, expected) in [
        ("http.request.method", "POST"),
        ("http.route", "/v1/agents/{namespace}/{name}"),
        ("url.path", "/v1/agents/ns/a/chat"),
        ("url.scheme", "http"),
        ("user.id", "alice"),
        ("k8s.namespace.name", "ns"),
        ("recif.kind", "Agent"),
        ("recif.name", "a"),
        ("recif.pod", "127.0.0.1"),
    ] {
        assert_eq!(text_attribute(&span.attributes, name), Some(expected), "{name}");
    }
    for (name, expected) in [
        ("http.response.status_code", Some(200)),
        ("recif.queue_ms", Some(0)),
        ("recif.retries", Some(0)),
        ("gen_ai.usage.input_tokens", Some(7)),
        ("gen_ai.usage.output_tokens", Some(5)),
        ("gen_ai.usage.reasoning.output_tokens", Some(2)),
        ("gen_ai.usage.cache_read.input_tokens", None),
    ] {
        assert_eq!(number(span, name), expected, "{name}");
    }
    assert_eq!(span.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["first_byte"]);
    assert!(span.start_time_unix_nano < span.end_time_unix_nano);
    assert_eq!((span.status.as_ref().unwrap().code(), span.links.len()), (status::StatusCode::Unset, 0));
    assert!(!format!("{span:?}").contains("canary"), "{span:?}");
}

#[tokio::test]
async fn below_an_anonymous_path_a_trace_begins_unless_a_trusted_proxy_sent_one() {
    let (collector, mut pod) = (SpanCollector::default(), TestPod::start().await);
    let sent = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\ntracestate: v=1\r\n");
    for (flags, sampler, is_continued) in
        [(&[][..], "parentbased_always_on", false), (&["--trusted-proxies", "127.0.0.0/8"], "always_on", true)]
    {
        let gateway = collector.gateway(sampler, gate().1, flags, &[pod.address]).await;
        gateway.object(Some(Object { anonymous_paths: Box::new(["/card".into()]), ..object() }));
        let mut client = gateway.send(&get("/card", &sent)).await;
        let (mut io, head) = pod.next().await;
        let got = context(&head).unwrap();
        assert_eq!((got.trace_text() == TRACE, got.is_sampled), (is_continued, true), "{head}");
        assert_eq!(field(&head, "tracestate"), is_continued.then_some("v=1"), "{head}");
        io.write_all(OK).await.unwrap();
        whole(&mut client).await;
        let spans = collector.spans(&gateway).await;
        let links: Vec<_> = spans.iter().flat_map(|span| &span.links).map(|link| hex::encode(&link.trace_id)).collect();
        assert_eq!((spans.len(), links), (1, if is_continued { Vec::new() } else { vec![TRACE.to_owned()] }));
    }
}

#[tokio::test]
async fn the_decision_not_to_record_goes_on() {
    let (collector, mut pod) = (SpanCollector::default(), TestPod::start().await);
    let (unsampled, sampled) = (format!("00-{TRACE}-{PARENT}-00"), format!("00-{TRACE}-{PARENT}-01"));
    for sampler in ["parentbased_always_off", "always_off"] {
        let gateway = collector.gateway(sampler, Auth::None { any_host: true }, &[], &[pod.address]).await;
        let mut forwarded = async |sent: &str| {
            let fields = if sent.is_empty() { String::new() } else { format!("traceparent: {sent}\r\n") };
            let mut client = gateway.send(&get("/x", &fields)).await;
            let (mut io, head) = pod.next().await;
            io.write_all(OK).await.unwrap();
            whole(&mut client).await;
            head
        };
        let head = forwarded("").await;
        let begun = context(&head).unwrap();
        assert!(!begun.is_sampled && begun.trace_text() != TRACE, "{head}");
        assert_eq!(field(&forwarded(&unsampled).await, "traceparent"), Some(unsampled.as_str()));
        if sampler == "always_off" {
            assert_eq!(field(&forwarded(&sampled).await, "traceparent"), Some(unsampled.as_str()));
        }
        assert_eq!(collector.spans(&gateway).await.len(), 0, "{sampler}");
    }
}

#[tokio::test]
async fn a_span_has_few_events_of_many_retries_and_counts_them_all() {
    let (collector, refusals) = (SpanCollector::default(), Arc::new(AtomicU32::new(20)));
    let mut pods = Vec::new();
    for _ in 0..5 {
        pods.push(full_pod(refusals.clone()).await);
    }
    let gateway = collector.gateway("always_on", Auth::None { any_host: true }, &[], &pods).await;
    let answer = gateway.answer(&get("/x", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let spans = collector.spans(&gateway).await;
    let [span] = &spans[..] else { panic!("{spans:?}") };
    let events: Vec<_> = span.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!((number(span, "recif.retries"), events.len()), (Some(20), 16), "{events:?}");
    let (last, others) = events.split_last().unwrap();
    assert_eq!((*last, others[0]), ("first_byte", "retry"), "{events:?}");
    assert!(others.iter().all(|name| ["queued", "retry"].contains(name)), "{events:?}");
}

#[tokio::test]
async fn a_refusal_of_an_admitted_caller_is_recorded_and_one_for_want_of_a_right_is_not() {
    let collector = SpanCollector::default();
    let gateway = collector.gateway("always_on", gate().1, &[], &[]).await;
    gateway.no_pod(false);
    let mut runs = Vec::new();
    for (token, status) in [("good-alice", 503), ("good-bob", 403), ("bad", 401)] {
        let answer = gateway.answer(&get("/x", &format!("Authorization: Bearer {token}\r\n"))).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        runs.extend(field(&answer, "x-recif-run").map(str::to_owned));
    }
    let spans = collector.spans(&gateway).await;
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(runs, [hex::encode(&span.trace_id)], "the refusal names its run, and no other one has any");
    for line in collector.1.lines(3).await {
        let run = runs.first().map(String::as_str).filter(|_| line["code"] == 503);
        assert_eq!(line["run"].as_str(), run, "{line}");
    }
    assert_eq!(text_attribute(&span.attributes, "error.type"), Some("unavailable"));
    assert_eq!(span.status.as_ref().unwrap().code(), status::StatusCode::Error);
    assert_eq!((number(span, "http.response.status_code"), span.events.len()), (Some(503), 0));
}
