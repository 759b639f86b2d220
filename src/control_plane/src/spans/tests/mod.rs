//! Tests that spans are received from the Pods of workloads, gateway and operator alone, over HTTP, and shown to those who may see the
//! workloads.

mod platform;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use cluster::{
    ChangeSource, ObjectVersion, Versioned,
    access::Reviews,
    error::RequestError,
    reviews::{Identity, Right},
};
use http_body_util::BodyExt as _;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use meta::Key;
use serde_json::{Value, json};
use store::ObjectKey;
use telemetry::{
    ExportProtocol, FinishedSpan, SpanEvent, SpanKind, TraceContext,
    otlp::{Span, decode_traces, encode_traces, gzip},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{args::SpanRetention, keeper::SpanKeeper, *};
use crate::{
    api,
    app::SharedAppState,
    fleet::testing::TestFleet,
    related, serve,
    testing::{app_with_history, app_with_rights_and_history},
};

const PROTOBUF: &str = "application/x-protobuf";
const CANARY: &str = "canary";
const RUN: &str = "/v1/runs/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";
const RETENTION: SpanRetention = SpanRetention { time: Duration::from_secs(3600), bytes: 1 << 20 };

/// Account of the gateway.
const GATEWAY: &str = "system:serviceaccount:recif-system:recif-gateway";

/// Reviews that know the tokens of Pods, `of-UID`, and that of the gateway.
struct PodTokens;

#[async_trait]
impl Reviews for PodTokens {
    async fn identify(&self, token: &str, audiences: &[String]) -> Result<Option<Identity>, RequestError> {
        assert_eq!(audiences, ["recif-telemetry"]);
        let (account, uid) = match token {
            "gateway" => (GATEWAY, Some("uid-gateway")),
            other => ("system:serviceaccount:ns:default", other.strip_prefix("of-")),
        };
        let uid = uid.map(str::to_owned);
        let identity = |uid| Identity {
            name: account.into(),
            extra: [("authentication.kubernetes.io/pod-uid".to_owned(), vec![uid])].into(),
            ..Identity::default()
        };
        Ok(uid.map(identity))
    }

    async fn is_allowed(&self, _: &Identity, _: &Right<'_>) -> Result<bool, RequestError> {
        Ok(false)
    }
}

/// Receiver on a port of its own.
struct Collector {
    address: SocketAddr,
    keeper: SpanKeeper,
    stop: CancellationToken,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Collector {
    async fn start(app: &SharedAppState, reviews: Option<Arc<dyn Reviews>>) -> Self {
        let (queue, keeper) = keeper(app.store.clone(), RETENTION, SpanMetrics::default());
        let senders = SpanSenders::new(reviews, vec![GATEWAY.to_owned()]);
        let receiver = SpanReceiver::new(app.clone(), senders, queue, SpanMetrics::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(serve::run(listener, None, receiver.router(), stop.clone()));
        Self { address, keeper, stop }
    }

    /// Sends a body, and returns the status and the body of the response.
    async fn send(&self, fields: &[(&str, &str)], body: Vec<u8>) -> (u16, Vec<u8>) {
        let mut request = Request::post(format!("http://{}/v1/traces", self.address));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    /// Stores what waits.
    async fn store(&mut self) {
        self.keeper.keep_waiting().await;
    }
}

fn pod(app: &SharedAppState, name: &str, agent: &str, address: &str, phase: &str) {
    let head = ObjectVersion { key: Key::new("ns", name), uid: format!("uid-{name}"), resource_version: 1 };
    let pod = json!({
        "metadata": { "name": name, "labels": { "recif.dev/agent": agent } },
        "spec": { "containers": [] }, "status": { "podIP": address, "phase": phase },
    });
    let pod = related::pod(&head, &pod.to_string()).unwrap();
    app.related.pods.observe(Versioned::new(head, pod), ChangeSource::Watch);
}

/// Returns a turn with one request to a model that failed, and content.
fn turn() -> Vec<FinishedSpan> {
    let context = TraceContext { trace_id: [10; 16], span_id: [1; 8], is_sampled: true, state: None };
    let turn = FinishedSpan {
        context: context.clone(),
        parent: None,
        name: "invoke_agent shop".into(),
        kind: SpanKind::Internal,
        start: 1_800_000_000_000_000_000,
        end: 1_800_000_002_000_000_000,
        attributes: vec![("gen_ai.conversation.id", "talk".into()), ("gen_ai.input.messages", CANARY.into())],
        events: Vec::new(),
        links: Vec::new(),
        error: None,
    };
    let chat = FinishedSpan {
        context: TraceContext { span_id: [2; 8], ..context },
        parent: Some([1; 8]),
        name: "chat gpt".into(),
        kind: SpanKind::Client,
        start: turn.start + 500_000_000,
        end: turn.start + 900_000_000,
        attributes: vec![
            ("gen_ai.request.model", "gpt".into()),
            ("gen_ai.usage.input_tokens", 12_u64.into()),
            ("gen_ai.tool.call.arguments", CANARY.into()),
            ("error.type", "429".into()),
        ],
        events: vec![SpanEvent {
            at: turn.start + 600_000_000,
            name: "recif.retry",
            attributes: vec![("exception.message", CANARY.into()), ("recif.wait_ms", 5_u64.into())],
        }],
        error: Some("429".into()),
        ..turn.clone()
    };
    vec![turn, chat]
}

fn body(protocol: ExportProtocol, resource: &[(&str, &str)]) -> Vec<u8> {
    let resource: Vec<_> = resource.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    encode_traces(protocol, &resource, turn())
}

/// Returns the spans of the turn as they are sent.
fn sent() -> Vec<Span> {
    let mut request = decode_traces(PROTOBUF, &body(ExportProtocol::Protobuf, &[])).unwrap();
    request.resource_spans.remove(0).scope_spans.remove(0).spans
}

/// Returns how many spans a response says were refused.
fn rejected(answer: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(answer).unwrap();
    answer["partialSuccess"]["rejectedSpans"].to_string().trim_matches('"').to_owned()
}

async fn ask(app: &SharedAppState, path: &str, token: &str) -> (u16, Value) {
    let request = Request::get(path).header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap();
    let response = api::router(app.clone()).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn spans_of_a_pod_are_its_workloads_and_hold_nothing_that_was_said() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "shop", "Running");
    let (app, _database) = app_with_history(&stage.fleet).await;
    let mut collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    pod(&app, "pod-1", "shop", "127.0.0.1", "Running");
    // Another one had the address before.
    pod(&app, "pod-0", "other", "127.0.0.1", "Succeeded");
    let lie = [("recif.kind", "Agent"), ("k8s.namespace.name", "other"), ("service.name", "victim")];
    let json = body(ExportProtocol::Json, &lie);
    let (status, answer) = collector.send(&[("content-type", "application/json; charset=utf-8")], json).await;
    assert_eq!((status, rejected(&answer).as_str()), (200, "null"));
    let compressed = gzip(&body(ExportProtocol::Protobuf, &lie)).unwrap();
    let (status, answer) =
        collector.send(&[("content-type", PROTOBUF), ("content-encoding", "gzip")], compressed).await;
    assert_eq!((status, answer.len()), (200, 0), "the same spans again");
    collector.store().await;

    let (status, run) = ask(&app, RUN, "any").await;
    assert_eq!(status, 200, "{run}");
    assert!(!run.to_string().contains(CANARY), "{run}");
    assert_eq!((&run["durationUs"], &run["truncated"]), (&json!(2_000_000), &json!(false)));
    let spans = run["spans"].as_array().unwrap();
    let shop = json!({ "kind": "Agent", "namespace": "ns", "name": "shop" });
    assert!(spans.len() == 2 && spans.iter().all(|span| span["workload"] == shop), "{run}");
    let chat = json!({
        "id": "0202020202020202", "parent": "0101010101010101", "afterUs": 500_000, "durationUs": 400_000,
        "hidden": false, "workload": shop,
        "span": {
            "name": "chat gpt", "side": "client", "error": "429", "links": [],
            "attributes": { "gen_ai.request.model": "gpt", "gen_ai.usage.input_tokens": 12, "error.type": "429" },
            "events": [{ "name": "recif.retry", "afterUs": 100_000, "attributes": { "recif.wait_ms": 5 } }],
        },
    });
    assert_eq!(spans[1], chat);
    for (query, found) in [
        ("kind=Agent&namespace=ns&name=shop", 1),
        ("conversation=talk", 1),
        ("conversation=other", 0),
        ("name=victim", 0),
        ("", 1),
    ] {
        let (status, runs) = ask(&app, &format!("/v1/runs?{query}"), "any").await;
        let items = runs["items"].as_array().unwrap();
        assert_eq!((status, items.len()), (200, found), "{query}: {runs}");
        assert!(items.iter().all(|run| (&run["spans"], &run["failed"]) == (&json!(2), &json!(1))), "{runs}");
    }
    assert_eq!(ask(&app, "/v1/runs/0a0a", "any").await.0, 404);
}

#[tokio::test]
async fn the_sender_is_the_pod_of_the_token_or_of_the_address_and_others_are_refused() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let mut collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    let send = async |collector: &Collector, token: Option<&str>| {
        let token = token.map(|token| format!("Bearer {token}"));
        let fields: Vec<_> = token.iter().map(|token| ("authorization", token.as_str())).collect();
        let fields = [&[("content-type", PROTOBUF)][..], &fields].concat();
        collector.send(&fields, body(ExportProtocol::Protobuf, &[])).await.0
    };
    assert_eq!(send(&collector, None).await, 403, "no Pod has the address");
    pod(&app, "pod-1", "one", "127.0.0.1", "Running");
    pod(&app, "pod-2", "two", "127.0.0.1", "Running");
    assert_eq!(send(&collector, None).await, 403, "two have the address");
    assert_eq!(send(&collector, Some("of-uid-lost")).await, 403, "the Pod is not known");
    assert_eq!(send(&collector, Some("guessed")).await, 401);
    assert_eq!(send(&collector, Some("of-uid-pod-2")).await, 200);
    collector.store().await;
    let (_, run) = ask(&app, RUN, "any").await;
    assert_eq!(run["spans"][0]["workload"]["name"], "two");
    app.synced.store(false, Relaxed);
    assert_eq!(send(&collector, Some("of-uid-pod-2")).await, 503, "Pods are not known yet");
}

#[tokio::test]
async fn without_sign_in_a_process_names_its_workload() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "shop", "Running");
    let (app, _database) = app_with_history(&stage.fleet).await;
    let mut collector = Collector::start(&app, None).await;
    let fields = [("content-type", "application/json")];
    for (name, refused) in [("lost", "2"), ("shop", "null")] {
        let named = [("recif.kind", "Agent"), ("k8s.namespace.name", "ns"), ("service.name", name)];
        let (status, answer) = collector.send(&fields, body(ExportProtocol::Json, &named)).await;
        assert_eq!((status, rejected(&answer).as_str()), (200, refused), "{name}");
    }
    collector.store().await;
    assert_eq!(ask(&app, RUN, "any").await.1["spans"][0]["workload"]["name"], "shop");
    let page = [("content-type", "application/json"), ("sec-fetch-site", "cross-site")];
    assert_eq!(collector.send(&page, body(ExportProtocol::Json, &[])).await.0, 403, "a page of another site");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    pod(&app, "pod-1", "one", "127.0.0.1", "Running");
    let spans = [0x12, 0].repeat(200_000);
    let within = |field: u8, body: &[u8]| {
        let (mut tagged, mut length) = (vec![field], body.len());
        while length > 0x7f {
            tagged.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        tagged.push(u8::try_from(length).unwrap());
        tagged.extend_from_slice(body);
        tagged
    };
    let many = within(0x0a, &within(0x12, &spans));
    let large = vec![0; 4 * 1024 * 1024 + 1];
    let bomb = gzip(&large).unwrap();
    let plain = |kind| vec![("content-type", kind)];
    let encoded = |encoding| vec![("content-type", PROTOBUF), ("content-encoding", encoding)];
    for (fields, body, expected) in [
        (plain("application/grpc"), Vec::new(), 415),
        (encoded("br"), Vec::new(), 415),
        (plain(PROTOBUF), vec![0xff, 0xff], 400),
        (plain("application/json"), b"{".to_vec(), 400),
        (encoded("gzip"), b"plain".to_vec(), 400),
        (encoded("gzip"), bomb, 400),
        (plain(PROTOBUF), large, 413),
        (plain(PROTOBUF), many, 413),
        (plain(PROTOBUF), Vec::new(), 200),
    ] {
        let length = body.len();
        assert_eq!(collector.send(&fields, body).await.0, expected, "{fields:?} {length}");
    }
}

#[tokio::test]
async fn what_cannot_be_stored_in_time_is_sent_again_later() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let mut collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    pod(&app, "pod-1", "one", "127.0.0.1", "Running");
    let many: Vec<_> = std::iter::repeat_with(turn).take(3000).flatten().collect();
    let body = gzip(&encode_traces(ExportProtocol::Protobuf, &[], many)).unwrap();
    let fields = [("content-type", PROTOBUF), ("content-encoding", "gzip")];
    let mut taken = 0;
    while collector.send(&fields, body.clone()).await.0 == 200 {
        taken += 1;
        assert!(taken < 100, "the queue has no bound");
    }
    assert!(taken > 0);
    assert_eq!(collector.send(&fields, body.clone()).await.0, StatusCode::TOO_MANY_REQUESTS.as_u16());
    collector.store().await;
    assert_eq!(collector.send(&fields, body).await.0, 200);
}

#[tokio::test]
async fn a_run_is_shown_as_far_as_its_workloads_are() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "one", "Running");
    let (app, rights, mut database) = app_with_rights_and_history(&stage.fleet).await;
    let key = |kind, namespace: &str| ObjectKey { kind, namespace: namespace.into(), name: "one".into() };
    let spans = sent();
    let rows = [document::row(&spans[0], &key("Agent", "ns"), 1), document::row(&spans[1], &key("Flow", "other"), 1)];
    database.writer.write_spans(&rows.map(Option::unwrap)).await.unwrap();
    rights.grant("alice get agents ns");
    rights.grant("ben list agents ns");

    let (status, problem) = ask(&app, RUN, "eve").await;
    let (_, unknown) = ask(&app, &RUN.replace("0a", "0b"), "eve").await;
    assert_eq!(status, 404, "{problem}");
    assert_eq!(problem.to_string().replace("0a", "0b"), unknown.to_string(), "what is hidden is as what is not there");
    let (status, run) = ask(&app, RUN, "alice").await;
    assert_eq!(status, 200, "{run}");
    let hidden = json!({
        "id": "0202020202020202", "parent": "0101010101010101", "afterUs": 500_000, "durationUs": 400_000, "hidden": true,
    });
    assert_eq!((&run["spans"][0]["span"]["name"], &run["spans"][1]), (&json!("invoke_agent shop"), &hidden));
    assert_eq!(ask(&app, "/v1/runs", "alice").await.0, 403);
    let (_, runs) = ask(&app, "/v1/runs", "ben").await;
    assert_eq!((&runs["items"][0]["spans"], &runs["items"][0]["failed"]), (&json!(1), &json!(0)), "{runs}");
}

#[tokio::test]
async fn the_oldest_go_when_there_are_too_many() {
    let stage = TestFleet::new();
    let (app, mut database) = app_with_history(&stage.fleet).await;
    let workload = ObjectKey { kind: "Agent", namespace: "ns".into(), name: "one".into() };
    let (now, mut span) = (Timestamp::now().as_millisecond(), sent().remove(0));
    let mut rows = Vec::new();
    for number in 0..4000_u32 {
        span.span_id = [&[1; 4][..], &number.to_be_bytes()].concat();
        rows.push(document::row(&span, &workload, now + i64::from(number)).unwrap());
    }
    // This one is too old.
    rows[0].received = now - 2 * 3600 * 1000;
    let (_queue, mut keeper) = keeper(app.store.clone(), RETENTION, SpanMetrics::default());
    keeper.keep(&rows).await;
    keeper.sweep().await;
    let bytes = database.writer.span_bytes().await.unwrap();
    assert!(bytes <= RETENTION.bytes && bytes > RETENTION.bytes / 2, "{bytes}");
    let kept = app.store.spans(&"0a".repeat(16), 5000).await.unwrap();
    let is_kept = |number: usize| kept.iter().any(|span| span.span == rows[number].span);
    assert_eq!([0, 1, 3999].map(is_kept), [false, false, true]);
}
