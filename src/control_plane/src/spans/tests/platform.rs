//! Tests that spans of the gateway are known by its account, and kept for the workloads that they are about.

use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use super::*;

/// Returns the span of a request for an agent of `ns` that the gateway refused, with this id.
fn refusal(agent: &str, id: u8) -> FinishedSpan {
    let turn = turn().remove(0);
    FinishedSpan {
        context: TraceContext { span_id: [id; 8], ..turn.context.clone() },
        name: "POST /v1/agents/{namespace}/{name}".into(),
        kind: SpanKind::Server,
        attributes: vec![
            ("recif.kind", "Agent".into()),
            ("k8s.namespace.name", "ns".into()),
            ("recif.name", agent.to_owned().into()),
            ("recif.queue_ms", 120_u64.into()),
            ("url.path", CANARY.into()),
            ("user.id", CANARY.into()),
            ("error.type", "queue-full".into()),
        ],
        events: vec![SpanEvent { at: turn.start + 1_000_000, name: "queued", attributes: Vec::new() }],
        error: Some("queue-full".into()),
        ..turn
    }
}

/// Encodes spans of a process that says that it is the gateway.
fn of_gateway(spans: Vec<FinishedSpan>) -> Vec<u8> {
    let resource =
        [("recif.kind", "gateway"), ("k8s.namespace.name", "recif-system"), ("service.name", "recif-gateway")];
    let resource = resource.map(|(name, value)| (name.to_owned(), value.to_owned()));
    encode_traces(ExportProtocol::Json, &resource, spans)
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_span_of_the_gateway_is_of_the_workload_that_it_names() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "shop", "Running");
    let (app, _database) = app_with_history(&stage.fleet).await;
    let mut collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    pod(&app, "pod-1", "other", "127.0.0.1", "Running");
    let nameless = FinishedSpan { attributes: Vec::new(), ..refusal("shop", 4) };
    let gateway = [JSON, ("authorization", "Bearer gateway")];
    let (status, answer) = collector.send(&gateway, of_gateway(vec![refusal("shop", 3), nameless])).await;
    assert_eq!((status, rejected(&answer).as_str()), (200, "1"), "a span that names nothing is refused");
    // What a workload's Pod says of itself counts for nothing.
    let pod = [JSON, ("authorization", "Bearer of-uid-pod-1")];
    let (status, answer) = collector.send(&pod, of_gateway(vec![refusal("shop", 5)])).await;
    assert_eq!((status, rejected(&answer).as_str()), (200, "null"));
    collector.store().await;

    let (status, run) = ask(&app, RUN, "any").await;
    assert_eq!(status, 200, "{run}");
    assert!(!run.to_string().contains(CANARY), "{run}");
    let spans = run["spans"].as_array().unwrap();
    let workloads: Vec<_> = spans.iter().map(|span| (&span["id"], &span["workload"]["name"])).collect();
    let expected = [(&json!("0303030303030303"), &json!("shop")), (&json!("0505050505050505"), &json!("other"))];
    assert_eq!(workloads, expected);
    let span = json!({
        "name": "POST /v1/agents/{namespace}/{name}", "side": "server", "error": "queue-full", "links": [],
        "attributes": {
            "recif.kind": "Agent", "recif.name": "shop", "recif.queue_ms": 120, "error.type": "queue-full",
        },
        "events": [{ "name": "queued", "afterUs": 1000, "attributes": {} }],
    });
    assert_eq!(spans[0]["span"], span);
}

#[tokio::test]
async fn a_pod_replaces_no_span_of_the_gateway_though_it_knows_its_ids_first() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let mut collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    pod(&app, "pod-1", "other", "127.0.0.1", "Running");
    for token in ["of-uid-pod-1", "gateway", "of-uid-pod-1"] {
        let authorization = format!("Bearer {token}");
        let fields = [JSON, ("authorization", authorization.as_str())];
        assert_eq!(collector.send(&fields, of_gateway(vec![refusal("shop", 3)])).await.0, 200, "{token}");
        collector.store().await;
    }
    let (_, run) = ask(&app, RUN, "any").await;
    let spans = run["spans"].as_array().unwrap();
    assert_eq!((spans.len(), &spans[0]["workload"]["name"]), (1, &json!("shop")));
}

#[tokio::test]
async fn pods_that_send_slowly_do_not_keep_the_gateway_out() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    pod(&app, "pod-1", "other", "127.0.0.1", "Running");
    let head = b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n";
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(collector.address).await.unwrap();
        stream.write_all(head).await.unwrap();
        slow.push(stream);
    }
    let status = async |fields: &[(&str, &str)]| collector.send(fields, of_gateway(Vec::new())).await.0;
    // Their bodies have five seconds.
    let all_are_read = async { while status(&[JSON]).await != 429 {} };
    timeout(Duration::from_secs(4), all_are_read).await.unwrap();
    assert_eq!(status(&[JSON, ("authorization", "Bearer gateway")]).await, 200);
}

#[tokio::test]
async fn guessed_tokens_from_its_address_do_not_keep_the_gateway_out() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    let status = async |token: &str| {
        let authorization = format!("Bearer {token}");
        collector.send(&[JSON, ("authorization", authorization.as_str())], of_gateway(Vec::new())).await.0
    };
    assert_eq!(status("gateway").await, 200);
    for number in 0..20 {
        assert_eq!(status(&format!("guess-{number}")).await, 401, "{number}");
    }
    assert_eq!((status("of-another").await, status("gateway").await), (429, 200));
}

#[tokio::test]
async fn a_name_that_no_object_can_have_is_refused() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let collector = Collector::start(&app, Some(Arc::new(PodTokens))).await;
    let gateway = [JSON, ("authorization", "Bearer gateway")];
    for (length, refused) in [(0, "1"), (254, "1"), (253, "null")] {
        let (status, answer) = collector.send(&gateway, of_gateway(vec![refusal(&"a".repeat(length), 3)])).await;
        assert_eq!((status, rejected(&answer).as_str()), (200, refused), "{length}");
    }
}

#[tokio::test]
async fn without_sign_in_the_gateway_says_that_it_is_the_gateway() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let mut collector = Collector::start(&app, None).await;
    let (status, answer) = collector.send(&[JSON], of_gateway(vec![refusal("shop", 3)])).await;
    assert_eq!((status, rejected(&answer).as_str()), (200, "null"));
    collector.store().await;
    assert_eq!(ask(&app, RUN, "any").await.1["spans"][0]["workload"]["name"], "shop");
}
