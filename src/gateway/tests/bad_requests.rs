//! What is refused, and never passed on.

use super::*;

#[tokio::test]
async fn bad_requests_are_answered_and_never_passed_on() {
    let mut pod = Pod::start().await;
    let gateway = Gateway::start(&[], &[pod.address]).await;
    let path = "/v1/agents/ns/a";
    for (request, status) in [
        (format!("GET {path} HTTP/1.1\r\n\r\n"), 400),
        (format!("GET {path} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400),
        (format!("GET http://b{path} HTTP/1.1\r\nHost: a\r\n\r\n"), 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".into(), 405),
        (format!("GET {path} HTTP/1.2\r\nHost: a\r\n\r\n"), 505),
        (format!("get {path} HTTP/1.1\r\nHost: a\r\n\r\n"), 400),
        (format!("GET {path} HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n"), 400),
        (format!("GET {path} HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n"), 400),
        (format!("GET {path} HTTP/1.1\r\nHost: a\r\nA: b\nB: c\r\n\r\n"), 400),
        (format!("GET {path} HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n"), 400),
        (format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400),
        (format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400),
        (format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n"), 400),
        (format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"), 400),
        (format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: x-recif-user\r\n\r\n"), 400),
        (format!("GET {path}/../b HTTP/1.1\r\nHost: a\r\n\r\n"), 400),
        (format!("GET {path}/%2e%2E%2fb HTTP/1.1\r\nHost: a\r\n\r\n"), 400),
        (format!("GET {path}/x HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(70_000)), 431),
    ] {
        let answer = gateway.answer(request.as_bytes()).await;
        let shown = &request[..request.len().min(200)];
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown:?}: {answer}");
        assert!(answer.contains("Connection: close\r\n"), "{shown:?}: {answer}");
        assert!(answer.contains("{\"error\":\"") && answer.contains("\"reason\":\""), "{shown:?}: {answer}");
    }
    assert!(!pod.has_connections());
}

#[tokio::test]
async fn what_is_not_there_or_not_for_clients_is_unknown() {
    let mut pod = Pod::start().await;
    let gateway = Gateway::start(&[], &[pod.address]).await;
    let mut client = gateway.client().await;
    for target in [
        "/",
        "/metrics",
        "/healthz",
        "/_recif/demand",
        "/v1/agents/ns",
        "/v1/agents/ns/b/x",
        "/v1/agents/other/a/x",
        "/v1/flows/ns/a/x",
        "/v1/mcp/ns/a/x",
        "/v1/tools/ns/a",
        "/v1/agents/ns/%61",
        "/v1/agents/ns/a/metrics",
        "/v1/agents/ns/a/%6detrics",
        "/v1/agents/ns/a/_recif/inflight",
        "/v1/agents/ns/a//_recif/drain?x",
    ] {
        client.write_all(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.unwrap();
        let (answer, body) = whole(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 404 ") && body.contains("\"reason\":\"unknown\""), "{target}: {answer}");
    }
    assert!(!pod.has_connections());
}

#[tokio::test]
async fn bad_chunks_are_refused_where_they_begin() {
    let mut pod = Pod::start().await;
    let gateway = Gateway::start(&[], &[pod.address]).await;
    let request = b"POST /v1/agents/ns/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let mut client = gateway.asks(request).await;
    let (mut workload, _) = pod.next().await;
    client.write_all(b"0x3\r\n").await.unwrap();
    assert!(head(&mut client).await.starts_with("HTTP/1.1 400 "));
    let mut rest = String::new();
    timeout(SOON, workload.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert!(!rest.ends_with("0\r\n\r\n"), "{rest:?}");
}
