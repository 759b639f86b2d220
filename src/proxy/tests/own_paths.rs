//! What the proxy answers itself.

use super::*;

#[tokio::test]
async fn the_proxy_speaks_for_itself() {
    let proxy = Proxy::start(&[("RECIF_CONCURRENCY", "7")]).await;
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
    let proxy = Proxy::before(address, &[]).await;
    let ready = proxy.answer(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    let answer = proxy.answer(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn what_is_counted_has_the_names_and_labels_that_are_documented() {
    let mut proxy = Proxy::start(&[("RECIF_CONCURRENCY", "1")]).await;
    let (mut client, mut workload, _) = proxy.asked(GET).await;
    assert!(proxy.answer(b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.contains(" 503 "));
    let elsewhere = b"GET /x HTTP/1.1\r\nHost: h\r\nX-Recif-Via: g\r\nConnection: close\r\n\r\n";
    assert!(proxy.answer(elsewhere).await.contains(" 503 "));
    assert!(proxy.answer(b"get /x HTTP/1.1\r\nHost: h\r\n\r\n").await.contains(" 400 "));
    workload.write_all(OK).await.unwrap();
    head(&mut client).await;
    exactly(&mut client, 2).await;
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
