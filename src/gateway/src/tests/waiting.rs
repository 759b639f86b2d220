//! Tests of queueing: requests for which there is no room yet.

use super::*;
use crate::admin::Admin;

/// Object whose Pods take one request at a time.
fn narrow() -> Object {
    Object { concurrency: Some(1), ..object() }
}

async fn narrow_gateway(flags: &[&str], pods: &[SocketAddr]) -> TestGateway {
    let gateway = TestGateway::start(flags, &[]).await;
    gateway.object(Some(narrow()));
    gateway.pods(&pods.iter().map(|address| (*address, EndpointState::Ready)).collect::<Vec<_>>());
    gateway
}

#[tokio::test]
async fn a_request_waits_until_another_has_ended() {
    let mut pod = TestPod::start().await;
    let gateway = narrow_gateway(&[], &[pod.address]).await;
    let mut first = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    let mut second = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    assert_eq!(gateway.in_flight(), 1);
    workload.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-recif-load: 1/1\r\n\r\nok").await.unwrap();
    whole(&mut first).await;
    read_head(&mut workload).await;
    assert_eq!(gateway.demand().waiting, 0);
    workload.write_all(OK).await.unwrap();
    whole(&mut second).await;
    gateway.until_in_flight(0).await;
    let demand = gateway.demand();
    assert!(demand.waited > Duration::ZERO && demand.refused == 0, "{demand:?}");
}

#[tokio::test]
async fn a_pod_that_refused_is_asked_again_in_a_moment() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    for _ in 0..3 {
        workload.write_all(FULL).await.unwrap();
        read_head(&mut workload).await;
    }
    workload.write_all(OK).await.unwrap();
    assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn who_left_is_out_at_once() {
    let mut pod = TestPod::start().await;
    let gateway = narrow_gateway(&[], &[pod.address]).await;
    let mut first = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    let leaving = gateway.send(b"POST /v1/agents/ns/a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nbody").await;
    gateway.until_waiting(1).await;
    drop(leaving);
    gateway.until_waiting(0).await;
    let mut second = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    workload.write_all(OK).await.unwrap();
    whole(&mut first).await;
    assert!(read_head(&mut workload).await.starts_with("GET "));
    workload.write_all(OK).await.unwrap();
    whole(&mut second).await;
}

#[tokio::test]
async fn who_left_behind_a_long_body_is_out_at_once() {
    let mut pod = TestPod::start().await;
    let gateway = narrow_gateway(&[], &[pod.address]).await;
    let _first = gateway.send(GET).await;
    let _held = pod.next().await;
    let mut long = b"POST /v1/agents/ns/a HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    long.resize(300_000, b'x');
    let leaving = gateway.send(&long).await;
    gateway.until_waiting(1).await;
    let resetting = gateway.send(&long).await;
    gateway.until_waiting(2).await;
    resetting.set_zero_linger().unwrap();
    drop(resetting);
    gateway.until_waiting(1).await;
    drop(leaving);
    gateway.until_waiting(0).await;
}

#[tokio::test]
async fn no_more_wait_than_may() {
    let mut pod = TestPod::start().await;
    let gateway = narrow_gateway(&["--queue-per-workload", "1"], &[pod.address]).await;
    let _first = gateway.send(GET).await;
    let _held = pod.next().await;
    let _second = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    let mut third = gateway.send(GET).await;
    let (answer, body) = whole(&mut third).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1\r\n"), "{answer}");
    assert!(body.contains("\"reason\":\"queue-full\""), "{body}");
    assert_eq!((gateway.demand().waiting, gateway.demand().refused), (1, 1));
}

#[tokio::test]
async fn the_wait_ends_in_time() {
    let mut pod = TestPod::start().await;
    let gateway = narrow_gateway(&["--queue-timeout", "60ms", "--cold-start-timeout", "30ms"], &[pod.address]).await;
    let _first = gateway.send(GET).await;
    let _held = pod.next().await;
    let (answer, body) = whole(&mut gateway.send(GET).await).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && body.contains("\"reason\":\"no-capacity\""), "{answer} {body}");
    gateway.pods(&[]);
    let (answer, body) = whole(&mut gateway.send(GET).await).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && body.contains("\"reason\":\"not-ready\""), "{answer} {body}");
    assert_eq!(gateway.demand().refused, 2);
}

#[tokio::test]
async fn a_workload_at_zero_is_waited_for_until_it_has_a_pod() {
    let gateway = TestGateway::start(&[], &[]).await;
    let mut client = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    let mut pod = TestPod::start().await;
    gateway.pods(&[(pod.address, EndpointState::Unready)]);
    assert_eq!(gateway.demand().waiting, 1);
    gateway.pods(&[(pod.address, EndpointState::Ready)]);
    let (mut workload, _) = pod.next().await;
    workload.write_all(OK).await.unwrap();
    whole(&mut client).await;
}

/// Returns the response of a ready sidecar whose Pod has this uid.
fn ready(uid: &str) -> String {
    let body = format!("{{\"pod\":\"{uid}\"}}");
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_pod_that_can_serve_before_the_kubelet_says_so_is_found_while_a_request_waits() {
    let gateway = TestGateway::start(&[], &[]).await;
    let mut pod = TestPod::start().await;
    gateway.pods(&[(pod.address, EndpointState::Unready)]);
    sleep(Duration::from_millis(80)).await;
    assert!(!pod.has_connections(), "no request waits, so no probe is sent");
    let mut client = gateway.send(GET).await;
    let (mut line, question) = pod.next().await;
    assert!(question.starts_with("GET /_recif/ready HTTP/1.1\r\n"), "{question}");
    assert_eq!(field(&question, "x-recif-workload"), Some("agent/ns/a"));
    for answer in ["HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"] {
        line.write_all(answer.as_bytes()).await.unwrap();
        read_head(&mut line).await;
    }
    line.write_all(ready("of-another-pod-that-has-its-address-now").as_bytes()).await.unwrap();
    read_head(&mut line).await;
    assert_eq!(gateway.demand().waiting, 1);
    line.write_all(ready(&pod.address.to_string()).as_bytes()).await.unwrap();
    let (mut workload, request) = pod.next().await;
    assert!(request.starts_with("GET /x "), "{request}");
    workload.write_all(OK).await.unwrap();
    whole(&mut client).await;
    let metrics = gateway.shared.metrics.encode().unwrap();
    assert!(metrics.contains("recif_gateway_cold_start_seconds_count{kind=\"Agent\"} 1\n"), "{metrics}");
    sleep(Duration::from_millis(80)).await;
    assert!(!pod.has_connections(), "and no probe is sent any more");
}

#[tokio::test]
async fn the_scaler_learns_at_once_of_who_begins_to_wait_for_no_pod() {
    use tower::ServiceExt as _;

    let gateway = TestGateway::start(&[], &[]).await;
    let cold = |query: &str| {
        let request =
            http::Request::get(format!("/_recif/demand/cold{query}")).body(axum::body::Body::empty()).unwrap();
        let answer = Admin::new(gateway.shared.clone()).router().oneshot(request);
        async move {
            let body = axum::body::to_bytes(answer.await.unwrap().into_body(), 1024).await.unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        }
    };
    assert_eq!(cold("").await, r#"{"times":0,"workloads":[]}"#, "a first query is answered at once");
    let mut polled = tokio::spawn(cold("?after=0"));
    assert!(timeout(Duration::from_millis(100), &mut polled).await.is_err(), "nothing has happened");
    let client = gateway.send(GET).await;
    let reported = polled.await.unwrap();
    let waits = r#"{"times":1,"workloads":[{"kind":"Agent","namespace":"ns","name":"a","waiting":1,"waitingMs":"#;
    assert!(reported.starts_with(waits), "{reported}");
    assert!(cold("?after=0").await.starts_with(waits), "what happened between two questions is not lost");
    let other = gateway.send(GET).await;
    gateway.until_waiting(2).await;
    assert!(timeout(Duration::from_millis(100), cold("?after=1")).await.is_err(), "the scaler knows of it already");
    drop((client, other));
    gateway.until_waiting(0).await;
    assert_eq!(cold("?after=0").await, r#"{"times":1,"workloads":[]}"#, "who left waits no more");
}

#[tokio::test]
async fn a_pod_that_was_early_and_does_not_serve_is_waited_for_again() {
    let gateway = TestGateway::start(&[], &[]).await;
    let mut pod = TestPod::start().await;
    gateway.pods(&[(pod.address, EndpointState::Unready)]);
    let uid = pod.address.to_string();
    let early = || {
        gateway.shared.routes.mark_self_reported(&gateway.shared.routes.find(b"agents/ns/a").unwrap().workload, &uid)
    };
    for (answer, status) in [
        ("HTTP/1.1 502 No\r\nContent-Length: 0\r\nx-recif-reason: connect\r\n\r\n", Some("HTTP/1.1 502 ")),
        ("HTTP/1.1 503 No\r\nContent-Length: 0\r\nx-recif-reason: draining\r\n\r\n", None),
        ("HTTP/1.1 421 No\r\nContent-Length: 0\r\nx-recif-reason: misdirected\r\n\r\n", None),
    ] {
        early();
        let mut client = gateway.send(GET).await;
        // Probes of the previous round may still be under way.
        let mut workload = loop {
            match pod.next().await {
                (workload, request) if request.starts_with("GET /x ") => break workload,
                (_, question) => assert!(question.starts_with("GET /_recif/ready "), "{question}"),
            }
        };
        workload.write_all(answer.as_bytes()).await.unwrap();
        match status {
            Some(status) => assert!(whole(&mut client).await.0.starts_with(status)),
            None => {
                gateway.until_waiting(1).await;
                let (_line, question) = pod.next().await;
                assert!(question.starts_with("GET /_recif/ready "), "{question}");
            }
        }
        assert!(gateway.shared.routes.find(b"agents/ns/a").unwrap().pods.is_empty(), "{answer}");
        drop(client);
        gateway.until_waiting(0).await;
    }
}

#[tokio::test]
async fn two_pods_are_asked_at_a_time_and_none_without_a_sidecar() {
    let gateway = TestGateway::start(&[], &[]).await;
    let mut pods = [TestPod::start().await, TestPod::start().await, TestPod::start().await];
    gateway.pods(&pods.each_ref().map(|pod| (pod.address, EndpointState::Unready)));
    let client = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    let _lines = (pods[0].next().await, pods[1].next().await);
    sleep(Duration::from_millis(80)).await;
    assert!(!pods[2].has_connections());
    drop(client);
    gateway.until_waiting(0).await;
    let gateway = TestGateway::start(&[], &[]).await;
    gateway.object(Some(Object { sidecar: false, ..object() }));
    gateway.pods(&[(pods[2].address, EndpointState::Unready)]);
    let _client = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    sleep(Duration::from_millis(80)).await;
    assert!(!pods[2].has_connections());
}

#[tokio::test]
async fn no_request_waits_for_a_pod_that_does_not_come() {
    let gateway = TestGateway::start(&[], &[]).await;
    let mut early = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    gateway.no_pod(true);
    for client in [&mut early, &mut gateway.send(GET).await] {
        let (answer, body) = whole(client).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert_eq!(body, "{\"error\":\"Agent ns/a is Failed.\",\"reason\":\"unavailable\"}");
    }
    let demand = gateway.demand();
    assert_eq!((demand.refused, demand.halted), (0, 2), "one Pod would end it, more of them would not");
    gateway.object(Some(object()));
    let mut late = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    gateway.object(None);
    assert!(read_head(&mut late).await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn pods_of_a_failed_update_serve_and_those_of_a_deleted_object_do_not() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    gateway.no_pod(true);
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    workload.write_all(OK).await.unwrap();
    whole(&mut client).await;
    gateway.no_pod(false);
    client.write_all(GET).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 503 "));
}

#[tokio::test]
async fn the_scaler_is_told_who_waits_and_who_was_refused() {
    use tower::ServiceExt as _;

    let gateway = TestGateway::start(&["--queue-per-workload", "1"], &[]).await;
    let admin = Admin::new(gateway.shared.clone());
    let ask = async |path: &str| {
        let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let answer = admin.clone().router().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 100_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let demand = async || serde_json::from_str::<serde_json::Value>(&ask("/_recif/demand").await.1).unwrap();
    let first = demand().await;
    assert_eq!((first["instance"].as_str(), first["workloads"].as_array().map(Vec::len)), (Some("gw"), Some(0)));
    let _waiting = gateway.send(GET).await;
    gateway.until_waiting(1).await;
    whole(&mut gateway.send(GET).await).await;
    until_grown(&gateway).await;
    let second = demand().await;
    let found = &second["workloads"][0];
    let named = (found["kind"].as_str(), found["namespace"].as_str(), found["name"].as_str());
    assert_eq!(named, (Some("Agent"), Some("ns"), Some("a")));
    assert_eq!((found["waiting"].as_u64(), found["refused"].as_u64()), (Some(1), Some(1)));
    assert!(found["waitingMs"].as_u64() >= Some(1) && second["uptimeMs"].as_u64() >= first["uptimeMs"].as_u64());

    assert_eq!(ask("/readyz").await.0, 200);
    gateway.shared.leaving.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(ask("/readyz").await, (503, "the gateway is shutting down\n".to_owned()));
    assert_eq!(ask("/healthz").await.0, 200);
    let metrics = ask("/metrics").await.1;
    for line in [
        "recif_gateway_requests_total{kind=\"Agent\",namespace=\"ns\",name=\"a\",code=\"503\"} 1",
        "recif_gateway_refused_total{kind=\"Agent\",namespace=\"ns\",name=\"a\",reason=\"queue-full\"} 1",
        "recif_gateway_queue_depth{kind=\"Agent\",namespace=\"ns\",name=\"a\"} 1",
        "recif_gateway_active_streams{kind=\"Agent\",namespace=\"ns\",name=\"a\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(!metrics.contains("recif_gateway_cold_starts_total{"), "who was not queued did not wait: {metrics}");
}

async fn until_grown(gateway: &TestGateway) {
    until(|| gateway.demand().waited >= Duration::from_millis(1)).await;
}
