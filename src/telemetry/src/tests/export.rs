//! A collector that is there, slow, away, or refuses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use url::Url;

use super::finished;
use crate::otlp::{self, ExportTraceServiceRequest};
use crate::{AttributeValue, ExportProtocol, FinishedSpan, SpanCounters, TelemetryConfig, TraceContext, Tracing};

/// Collector that keeps what it receives, and answers by a script, then 200.
#[derive(Clone, Default)]
struct Collector {
    received: Arc<Mutex<Vec<(HeaderMap, ExportTraceServiceRequest)>>>,
    script: Arc<Mutex<VecDeque<Response>>>,
    /// Set for a collector that takes requests and never answers.
    is_silent: bool,
    changed: Arc<Notify>,
}

impl Collector {
    async fn start(self) -> Url {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap()).parse().unwrap();
        let routes = Router::new().route("/v1/traces", post(receive)).with_state(self);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        url
    }

    /// Returns the names of the spans of each request that was answered by success.
    fn batches(&self) -> Vec<Vec<String>> {
        let received = self.received.lock().unwrap();
        let spans = |request: &ExportTraceServiceRequest| {
            request.resource_spans[0].scope_spans[0].spans.iter().map(|span| span.name.clone()).collect::<Vec<_>>()
        };
        received.iter().map(|(_, request)| spans(request)).collect()
    }
}

async fn receive(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> Response {
    let scripted = collector.script.lock().unwrap().pop_front();
    let answer = scripted.unwrap_or_else(|| StatusCode::OK.into_response());
    if collector.is_silent {
        std::future::pending::<()>().await;
    }
    if answer.status().is_success() {
        let is_gzip = headers.get("content-encoding").is_some_and(|coding| coding == "gzip");
        let body = if is_gzip { otlp::gunzip(&body, 8 << 20).unwrap() } else { body.to_vec() };
        let request = otlp::decode_traces(headers["content-type"].to_str().unwrap(), &body).unwrap();
        collector.received.lock().unwrap().push((headers, request));
    }
    collector.changed.notify_one();
    answer
}

fn config(endpoint: &Url) -> TelemetryConfig {
    let delay = Duration::from_millis(20);
    TelemetryConfig { endpoint: Some(endpoint.clone()), delay, ..TelemetryConfig::default() }
}

fn start(config: &TelemetryConfig) -> (Tracing, SpanCounters) {
    let counters = SpanCounters::default();
    let own = [("service.name", "test".to_owned())];
    (Tracing::start(config, &own, counters.clone()).unwrap(), counters)
}

#[tokio::test]
async fn spans_arrive_in_both_encodings_with_the_configured_headers() {
    for (protocol, has_compression) in [(ExportProtocol::Protobuf, true), (ExportProtocol::Json, false)] {
        let collector = Collector::default();
        let url = collector.clone().start().await;
        let mut config = TelemetryConfig { protocol, has_compression, ..config(&url) };
        config.headers.insert("x-key", "k".parse().unwrap());
        let (tracing, counters) = start(&config);
        tracing.record(finished("one"));
        tracing.record(finished("two"));
        tracing.shutdown().await;
        assert_eq!(collector.batches(), [["one", "two"]]);
        let (headers, request) = collector.received.lock().unwrap()[0].clone();
        assert_eq!(headers["x-key"], "k");
        assert_eq!(headers["content-type"], protocol.content_type());
        let process = request.resource_spans[0].resource.as_ref().unwrap();
        assert_eq!(otlp::text_attribute(&process.attributes, "service.name"), Some("test"));
        assert_eq!((counters.of("sent"), counters.of("dropped"), counters.of("failed")), (2, 0, 0));
    }
}

#[tokio::test]
async fn the_token_of_a_file_is_read_for_each_request() {
    let collector = Collector::default();
    let url = collector.clone().start().await;
    let file = std::env::temp_dir().join(format!("recif-telemetry-token-{}", std::process::id()));
    let (tracing, counters) = start(&TelemetryConfig { token_file: Some(file.clone()), ..config(&url) });
    for token in ["first\n", "second\n"] {
        std::fs::write(&file, token).unwrap();
        tracing.record(finished("one"));
        tracing.shutdown().await;
    }
    std::fs::remove_file(&file).unwrap();
    let received = collector.received.lock().unwrap().clone();
    let tokens: Vec<_> = received.iter().map(|(headers, _)| headers["authorization"].to_str().unwrap()).collect();
    assert_eq!((tokens, counters.of("sent")), (vec!["Bearer first", "Bearer second"], 2));
}

#[tokio::test]
async fn a_batch_is_sent_when_it_is_full_or_old() {
    let collector = Collector::default();
    let url = collector.clone().start().await;
    let (tracing, _) = start(&TelemetryConfig { max_batch: 2, ..config(&url) });
    for name in ["a", "b", "c"] {
        tracing.record(finished(name));
    }
    while collector.batches().len() < 2 {
        collector.changed.notified().await;
    }
    assert_eq!(collector.batches(), [vec!["a", "b"], vec!["c"]]);
}

#[tokio::test]
async fn a_batch_is_sent_when_its_texts_are_large() {
    let collector = Collector::default();
    let url = collector.clone().start().await;
    let (tracing, _) = start(&TelemetryConfig { delay: Duration::from_secs(60), ..config(&url) });
    let large = || AttributeValue::from("x".repeat(400 << 10));
    for name in ["a", "b", "c", "d"] {
        tracing.record(FinishedSpan { attributes: vec![("gen_ai.input.messages", large())], ..finished(name) });
    }
    tracing.shutdown().await;
    assert_eq!(collector.batches(), [vec!["a", "b", "c"], vec!["d"]]);
}

#[tokio::test]
async fn spans_that_wait_are_bounded_by_their_texts_too() {
    let collector = Collector::default();
    let url = collector.clone().start().await;
    let (tracing, counters) = start(&TelemetryConfig { delay: Duration::from_secs(60), ..config(&url) });
    let large = || AttributeValue::from("x".repeat(6 << 20));
    let record = |name: &'static str| {
        let attributes = vec![("gen_ai.input.messages", large())];
        tracing.record(FinishedSpan { attributes, ..finished(name) });
    };
    // The exporter does not run before the first wait.
    for name in ["a", "b", "dropped"] {
        record(name);
    }
    tracing.record(finished("small"));
    assert_eq!(counters.of("dropped"), 1);
    while counters.of("sent") < 2 {
        tokio::task::yield_now().await;
    }
    record("c");
    assert_eq!(counters.of("dropped"), 1, "there is room again");
}

#[tokio::test]
async fn a_collector_that_is_busy_is_asked_again_when_it_says() {
    let collector = Collector::default();
    let busy = |status: StatusCode| (status, [("retry-after", "0")]).into_response();
    let script = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].map(busy);
    collector.script.lock().unwrap().extend(script);
    let url = collector.clone().start().await;
    let (tracing, counters) = start(&config(&url));
    tracing.record(finished("one"));
    tracing.shutdown().await;
    assert_eq!((collector.batches(), counters.of("sent")), (vec![vec!["one".to_owned()]], 1));
}

#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let collector = Collector::default();
    let long = (StatusCode::OK, "x".repeat(10 << 20)).into_response();
    collector.script.lock().unwrap().extend([StatusCode::BAD_REQUEST.into_response(), long]);
    let url = collector.clone().start().await;
    let (tracing, counters) = start(&config(&url));
    tracing.record(finished("refused"));
    tracing.shutdown().await;
    assert_eq!((counters.of("failed"), counters.of("sent")), (1, 0));
    tracing.record(finished("taken"));
    tracing.shutdown().await;
    assert_eq!((counters.of("sent"), collector.batches()), (1, vec![vec!["taken".to_owned()]]));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_costs_the_spans_and_no_time() {
    // Nothing listens at this port, which was just given back.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (tracing, counters) = start(&TelemetryConfig { max_queue: 8, max_batch: 4, ..config(&url) });
    for _ in 0..20 {
        tracing.record(finished("lost"));
    }
    assert_eq!(counters.of("dropped"), 12, "the queue has room for 8");
    while counters.of("failed") < 8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(counters.of("sent"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_ends_although_its_collector_is_silent() {
    let collector = Collector { is_silent: true, ..Collector::default() };
    let url = collector.clone().start().await;
    let (tracing, counters) = start(&config(&url));
    tracing.record(finished("one"));
    let began = tokio::time::Instant::now();
    tracing.shutdown().await;
    assert_eq!((began.elapsed().as_secs(), counters.of("sent")), (2, 0));
}

#[tokio::test]
async fn what_is_not_sampled_is_not_sent() {
    let collector = Collector::default();
    let url = collector.clone().start().await;
    let (tracing, counters) = start(&config(&url));
    let unsampled = TraceContext::root(false);
    let context = tracing.begin(Some(&unsampled)).unwrap();
    assert_eq!((context.trace_id, context.is_sampled), (unsampled.trace_id, false));
    assert!(tracing.begin(None).unwrap().is_sampled);
    let mut span = finished("unsampled");
    span.context = context;
    tracing.record(span);
    tracing.shutdown().await;
    assert_eq!((collector.batches().len(), counters.of("dropped")), (0, 0));
}

#[tokio::test]
async fn without_a_collector_nothing_begins() {
    let (tracing, _) = start(&TelemetryConfig::default());
    assert_eq!((tracing.is_on(), tracing.begin(None)), (false, None));
    tracing.record(finished("nowhere"));
    tracing.shutdown().await;
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_told() {
    let url = "https://collector:4318".parse().unwrap();
    let certificate = Some(("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/surely/not/there.pem".into()));
    let config = TelemetryConfig { certificate, ..config(&url) };
    let error = Tracing::start(&config, &[], SpanCounters::default()).err().unwrap().to_string();
    assert!(error.starts_with("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: read /surely/not/there.pem: "), "{error}");
}
