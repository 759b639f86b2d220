//! Tests of the endpoints that the proxy serves itself.

use http1::{Fields, RequestHead};

use super::*;
use crate::admin::AdminRequest;

/// Public key of a gateway: templates with caller keys run the program as their hook.
const KEYS: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

#[tokio::test]
async fn the_proxy_speaks_for_itself() {
    let proxy = TestProxy::start(&[("RECIF_CONCURRENCY", "7")]).await;
    let get = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        proxy.answer(request.as_bytes()).await
    };
    assert!(get("/healthz").await.starts_with("HTTP/1.1 200 "));
    assert!(get("/readyz").await.starts_with("HTTP/1.1 200 "));
    assert!(get("/metrics").await.contains("recif_proxy_inflight 0"));
    let inflight = get("/_recif/inflight").await;
    let body: serde_json::Value = serde_json::from_str(inflight.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((body["inflight"].as_u64(), body["concurrency"].as_u64()), (Some(0), Some(7)));
    for hidden in ["/_recif/drain", "/_recif/lame-duck", "/_recif/other"] {
        assert!(get(hidden).await.starts_with("HTTP/1.1 404 "), "{hidden}");
    }
}

#[tokio::test]
async fn a_workload_that_does_not_listen_is_said_so() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let proxy = TestProxy::before(address, &[]).await;
    let ready = proxy.answer(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    let answer = proxy.answer(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn what_is_counted_has_the_names_and_labels_that_are_documented() {
    let mut proxy = TestProxy::start(&[("RECIF_CONCURRENCY", "1")]).await;
    let (mut client, mut workload, _) = proxy.request(GET).await;
    assert!(proxy.answer(b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.contains(" 503 "));
    let elsewhere = b"GET /x HTTP/1.1\r\nHost: h\r\nX-Recif-Via: g\r\nConnection: close\r\n\r\n";
    assert!(proxy.answer(elsewhere).await.contains(" 503 "));
    assert!(proxy.answer(b"get /x HTTP/1.1\r\nHost: h\r\n\r\n").await.contains(" 400 "));
    workload.write_all(OK).await.unwrap();
    read_head(&mut client).await;
    read_exactly(&mut client, 2).await;
    proxy.until_in_flight(0).await;
    let metrics = proxy.answer(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    for line in [
        "recif_proxy_requests_total{code=\"200\"} 1",
        "recif_proxy_requests_total{code=\"400\"} 1",
        "recif_proxy_requests_total{code=\"503\"} 2",
        "recif_proxy_rejected_total{reason=\"over-capacity\"} 2",
        "recif_proxy_rejected_total{reason=\"bad-request\"} 1",
        "recif_proxy_inflight 0",
        "recif_proxy_duration_seconds_count 1",
        "recif_proxy_ttfb_seconds_count 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    let load = serde_json::to_value(proxy.shared.load.report()).unwrap();
    assert_eq!(
        (load["completed"].as_u64(), load["refused"].as_u64()),
        (Some(1), Some(1)),
        "one is the gateway's to count"
    );
}

#[tokio::test]
async fn the_lame_duck_is_told_from_inside_of_the_pod_alone() {
    // A template whose hook is the program itself.
    let proxy = shared("127.0.0.1:1".parse().unwrap(), &[("RECIF_CALLER_KEYS", KEYS)]);
    let older = shared("127.0.0.1:1".parse().unwrap(), &[]);
    for (shared, peer, path, key, found) in [
        (&proxy, "127.0.0.1", "/_recif/lame-duck", "key", true),
        (&proxy, "::1", "/_recif/lame-duck", "key", true),
        (&proxy, "127.0.0.1", "/_recif/lame-duck", "other", false),
        (&proxy, "10.0.0.7", "/_recif/lame-duck", "key", false),
        (&proxy, "10.0.0.7", "/_recif/drain", "key", true),
        (&proxy, "10.0.0.7", "/_recif/drain", "other", false),
        (&older, "10.0.0.7", "/_recif/lame-duck", "key", true),
        (&older, "10.0.0.7", "/_recif/lame-duck", "other", false),
    ] {
        let bytes = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Recif-Key: {key}\r\n\r\n");
        let mut fields = Fields::default();
        let head = RequestHead::read(bytes.as_bytes(), &mut fields).unwrap();
        let own = AdminRequest::parse(&head, peer, shared).unwrap();
        assert_eq!(own.map_err(|answer| answer.status).err(), (!found).then_some(404), "{peer} {path} {key}");
    }
}

#[tokio::test]
async fn who_used_the_models_is_told_to_those_who_may_read_the_pod_alone() {
    let mut proxy = TestProxy::start(&[("RECIF_KIND", "Agent")]).await;
    let request = |key: &str| {
        let target = "/_recif/usage?instance=7&after=3%0d%0ax";
        format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Recif-Key: {key}\r\nConnection: close\r\n\r\n")
    };
    for wrong in ["key", "", "other"] {
        assert!(proxy.answer(request(wrong).as_bytes()).await.starts_with("HTTP/1.1 404 "), "{wrong}");
    }
    let key = crds::usage::usage_key("key").unwrap();
    for (body, status) in [
        (r#"{"instance":"7","revision":3,"cells":[]}"#, 200),
        (r#"{"instance":"7","rev"#, 404),
        (r#"{"status":"ok"}"#, 404),
        ("<p>", 404),
    ] {
        let (mut client, mut workload, head) = proxy.request(request(&key).as_bytes()).await;
        assert!(head.starts_with("GET /_recif/usage?instance=7&after=3 HTTP/1.0\r\n"), "{head}");
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}");
        workload.write_all(answer.as_bytes()).await.unwrap();
        drop(workload);
        let mut answer = String::new();
        timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(answer.ends_with(body), status == 200, "{answer}");
    }
}

#[tokio::test]
async fn a_request_for_another_workload_is_misdirected() {
    let mut proxy = TestProxy::start(&[("RECIF_NAME", "a"), ("RECIF_NAMESPACE", "ns")]).await;
    let request = |named: &str| format!("GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{named}\r\n");
    for other in ["X-Recif-Workload: agent/ns/b\r\n", "x-recif-workload: agent/other/a\r\n", "X-Recif-Workload:\r\n"] {
        let answer = proxy.answer(request(other).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 421 ") && answer.contains("x-recif-reason: misdirected\r\n"), "{answer}");
    }
    assert!(proxy.accepted.try_recv().is_err());
    for ours in ["X-Recif-Workload: agent/ns/a\r\n", ""] {
        let (mut client, mut workload, _) = proxy.request(request(ours).as_bytes()).await;
        workload.write_all(OK).await.unwrap();
        assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200 "), "{ours}");
    }
}

/// Starts a workload that sends this response on every connection. Returns the number of its requests too.
async fn answers(text: &'static str) -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut io, _)) = listener.accept().await {
            let counter = counter.clone();
            tokio::spawn(async move {
                if io.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {
                    counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    io.write_all(text.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_workload_that_can_never_answer_is_not_ready_and_others_are_asked_until_they_answer_once() {
    const READY: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for (text, status) in [
        ("HTTP/1.1 503 Service Unavailable\r\nX-Recif-Ready: never\r\nContent-Length: 0\r\n\r\n", "503"),
        ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 22\r\n\r\nx-recif-ready: never\r\n", "200"),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "200"),
        ("no HTTP\r\n\r\n", "200"),
    ] {
        let (workload, asked) = answers(text).await;
        let proxy = TestProxy::before(workload, &[]).await;
        for _ in 0..3 {
            let answer = proxy.answer(READY).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{text}: {answer}");
        }
        let asked = asked.load(std::sync::atomic::Ordering::SeqCst);
        let once = status == "200" && text.starts_with("HTTP/");
        assert_eq!(asked, if once { 1 } else { 3 }, "{text}");
    }
}

#[tokio::test]
async fn the_metrics_end_with_those_of_the_runner() {
    let runner = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = runner.local_addr().unwrap();
    let (answers, mut wanted) = mpsc::unbounded_channel::<&'static str>();
    tokio::spawn(async move {
        while let Ok((mut io, _)) = runner.accept().await {
            assert!(read_head(&mut io).await.starts_with("GET /metrics "));
            io.write_all(wanted.recv().await.unwrap().as_bytes()).await.unwrap();
        }
    });
    let scrape = async |proxy: &TestProxy| {
        let answer = proxy.answer(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let proxy = TestProxy::before(address, &[("RECIF_KIND", "Agent")]).await;
    answers
        .send("HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0\r\n\r\nrunner_turns 3\n# EOF\n")
        .unwrap();
    let text = scrape(&proxy).await;
    assert!(text.contains("recif_proxy_inflight 0\n") && text.ends_with("\nrunner_turns 3\n# EOF\n"), "{text}");
    assert_eq!(text.matches("# EOF").count(), 1, "{text}");
    for other in [
        "HTTP/1.0 404 Not Found\r\nContent-Type: application/openmetrics-text\r\n\r\nrunner 1\n# EOF\n",
        "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nrunner\n# EOF\n",
        "HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text\r\n\r\nrunner cut off",
    ] {
        answers.send(other).unwrap();
        let text = scrape(&proxy).await;
        assert!(text.ends_with("\n# EOF\n") && !text.contains("runner"), "{text}");
    }
    let server = TestProxy::before(address, &[("RECIF_KIND", "MCPServer")]).await;
    assert!(scrape(&server).await.ends_with("# EOF\n"), "an image of others is not asked");
}

#[tokio::test]
async fn a_gateway_learns_that_the_pod_can_serve_from_the_question_that_the_kubelet_asks() {
    let workload = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = workload.local_addr().unwrap();
    let named = [("RECIF_NAME", "a"), ("RECIF_NAMESPACE", "ns"), ("RECIF_POD_UID", "p1")];
    let with = |readiness: &'static str| [&named[..], &[("RECIF_READINESS", readiness)]].concat();
    let ask = async |proxy: &TestProxy, named: &str| {
        let request = format!("GET /_recif/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{named}\r\n");
        proxy.answer(request.as_bytes()).await
    };
    let ours = "X-Recif-Workload: agent/ns/a\r\n";
    let proxy = TestProxy::before(address, &with("/ready?x")).await;
    assert!(ask(&proxy, "").await.starts_with("HTTP/1.1 400 "));
    assert!(ask(&proxy, "X-Recif-Workload: agent/ns/b\r\n").await.starts_with("HTTP/1.1 421 "));
    for (expected, status) in [
        ("HTTP/1.1 503 Not yet\r\n\r\n", 503),
        ("HTTP/1.1 200 OK\r\nx-recif-ready: never\r\n\r\n", 503),
        ("HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n", 503),
        ("HTTP/1.1 200 OK\r\n", 503),
        ("hello", 503),
        ("HTTP/1.0 204 No Content\r\n\r\n", 200),
    ] {
        let answer = async {
            let (mut io, _) = workload.accept().await.unwrap();
            assert!(read_head(&mut io).await.starts_with("GET /ready?x HTTP/1.1\r\n"));
            io.write_all(expected.as_bytes()).await.unwrap();
        };
        // A new proxy per case, without a cached result.
        let proxy = TestProxy::before(address, &with("/ready?x")).await;
        let (reported, ()) = tokio::join!(ask(&proxy, ours), answer);
        assert!(reported.starts_with(&format!("HTTP/1.1 {status} ")), "{expected}: {reported}");
        assert_eq!(reported.ends_with("{\"pod\":\"p1\"}"), status == 200, "{reported}");
    }
    assert!(ask(&TestProxy::before(address, &with("tcp")).await, ours).await.starts_with("HTTP/1.1 200 "));
    assert!(ask(&TestProxy::before(address, &with("")).await, ours).await.starts_with("HTTP/1.1 404 "));
    let going = TestProxy::before(address, &with("tcp")).await;
    going.shared.drain.begin_lame_duck();
    assert!(ask(&going, ours).await.starts_with("HTTP/1.1 503 "), "the Pod is going");
    drop(workload);
    assert!(ask(&TestProxy::before(address, &with("tcp")).await, ours).await.starts_with("HTTP/1.1 503 "));
}
