//! Tests of requests that are refused and never forwarded.

use testing::bad_requests;

use super::*;
use crate::auth::tests::gate;

#[tokio::test]
async fn bad_requests_are_answered_and_never_passed_on() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
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
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
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
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let request = b"POST /v1/agents/ns/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let mut client = gateway.send(request).await;
    let (mut workload, _) = pod.next().await;
    client.write_all(b"0x3\r\n").await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 400 "));
    let mut rest = String::new();
    timeout(SOON, workload.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert!(!rest.ends_with("0\r\n\r\n"), "{rest:?}");
}

#[tokio::test]
async fn what_a_server_could_read_otherwise_is_not_passed_on() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    for cleaned in bad_requests::sanitized_requests("/v1/agents/ns/a/x") {
        let mut client = gateway.send(&cleaned.bytes).await;
        let (mut workload, seen) = pod.next().await;
        let body = read_exactly(&mut workload, cleaned.body.len()).await;
        assert_eq!(body, cleaned.body, "{}", cleaned.name);
        for absent in cleaned.absent {
            assert!(!seen.to_lowercase().contains(absent), "{}: {seen}", cleaned.name);
        }
        workload.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await.unwrap();
        assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 200 "), "{}", cleaned.name);
    }
}

/// Covers paths that need no credential, and what an anonymous caller can reach through them.
#[tokio::test]
async fn who_is_admitted_by_the_path_alone_gets_no_tunnel_and_asks_for_no_other_path() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::with_auth(gate().1, &[], &[pod.address]).await;
    let fields = "Host: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Original-URL: /chat\r\nx_rewrite_url: /chat\r\n\
                  X-HTTP-Method-Override: PUT\r\n\r\n";
    let (listed, everything) = (["/card", "/.well-known/*"].map(Box::from), ["/*"].map(Box::from));
    for (paths, target, upgrades) in
        [(&listed[..], "/card", false), (&listed, "/.well-known/a", false), (&everything, "/card", true)]
    {
        gateway.object(Some(Object { anonymous_paths: paths.into(), ..object() }));
        let mut client = gateway.send(format!("GET /v1/agents/ns/a{target} HTTP/1.1\r\n{fields}").as_bytes()).await;
        let (mut workload, seen) = pod.next().await;
        assert!(!seen.contains("/chat") && !seen.contains("PUT"), "{seen}");
        assert_eq!(field(&seen, "Upgrade"), upgrades.then_some("websocket"), "{target}: {seen}");
        let accepted = b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        workload.write_all(accepted).await.unwrap();
        let status = if upgrades { "101" } else { "502" };
        assert!(read_head(&mut client).await.starts_with(&format!("HTTP/1.1 {status} ")), "{target}");
    }
    // With the right, everything is forwarded.
    gateway.object(Some(object()));
    let token = "Authorization: Bearer good-alice\r\n";
    let _client = gateway.send(format!("GET /v1/agents/ns/a/chat HTTP/1.1\r\n{token}{fields}").as_bytes()).await;
    let (_, seen) = pod.next().await;
    assert_eq!((field(&seen, "Upgrade"), field(&seen, "X-Original-URL")), (Some("websocket"), Some("/chat")), "{seen}");
}

#[tokio::test]
async fn a_client_of_http_1_0_is_told_of_no_chunks() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway.send(b"GET /v1/agents/ns/a/x HTTP/1.0\r\n\r\n").await;
    let (mut workload, _) = pod.next().await;
    let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    workload.write_all(answer).await.unwrap();
    let mut seen = String::new();
    timeout(SOON, client.read_to_string(&mut seen)).await.unwrap().unwrap();
    assert!(seen.ends_with("\r\n\r\nhello") && !seen.contains("Transfer-Encoding"), "{seen}");
}
