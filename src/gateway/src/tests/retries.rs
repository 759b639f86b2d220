//! Tests of retries: requests that are sent again, and those that never are.

use super::*;

const POST: &[u8] = b"POST /v1/agents/ns/a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";

#[tokio::test]
async fn a_pod_without_room_sends_a_request_on_with_its_body() {
    let (mut one, mut other) = (TestPod::start().await, TestPod::start().await);
    let gateway = TestGateway::start(&[], &[one.address, other.address]).await;
    let mut client = gateway.send(POST).await;
    let ((mut full, _), second) = tokio::select! {
        found = one.next() => (found, &mut other),
        found = other.next() => (found, &mut one),
    };
    assert_eq!(read_exactly(&mut full, 4).await, "body");
    full.write_all(FULL).await.unwrap();
    let (mut workload, seen) = second.next().await;
    assert!(seen.starts_with("POST / "), "{seen}");
    assert_eq!(read_exactly(&mut workload, 4).await, "body");
    workload.write_all(OK).await.unwrap();
    assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_body_that_is_too_long_to_be_held_is_not_sent_again() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let length = 100_000;
    let request = format!("POST /v1/agents/ns/a HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
    let mut client = gateway.send(request.as_bytes()).await;
    client.write_all(&vec![b'x'; length]).await.unwrap();
    let (mut workload, _) = pod.next().await;
    read_exactly(&mut workload, length).await;
    workload.write_all(FULL).await.unwrap();
    let (answer, _) = whole(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(gateway.demand().refused, 1);
}

#[tokio::test]
async fn a_pod_that_cannot_be_reached_is_passed_over() {
    let mut pod = TestPod::start().await;
    let closed = ClosedPort::bind();
    let gateway = TestGateway::start(&[], &[pod.address, closed.address]).await;
    for _ in 0..20 {
        let mut client = gateway.send(POST).await;
        let (mut workload, _) = pod.next().await;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        read_exactly(&mut workload, 4).await;
        workload.write_all(answer).await.unwrap();
        assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test]
async fn a_request_that_was_not_answered_does_not_make_an_unreachable_pod_available() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let target = gateway.shared.routes.find(b"agents/ns/a").unwrap().pods[0].clone();
    for aborts in [true, false] {
        let client = gateway.send(GET).await;
        let (workload, _) = pod.next().await;
        // As if a minute later, so that the circuit breaker outlasts the test.
        target.unreachable(gateway.shared.clock.now() + 60_000);
        let (gone, _stays) = if aborts { (client, workload) } else { (workload, client) };
        drop(gone);
        gateway.until_in_flight(0).await;
        assert_eq!(target.load(gateway.shared.clock.now()), None, "aborted by the client: {aborts}");
        target.answered(None, gateway.shared.clock.now());
    }
}

#[tokio::test]
async fn no_reachable_pod_is_reported_after_two_retries() {
    let closed = [(); 4].map(|()| ClosedPort::bind());
    let gateway = TestGateway::start(&[], &closed.each_ref().map(|port| port.address)).await;
    let mut client = gateway.send(GET).await;
    let (answer, body) = whole(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && body.contains("\"reason\":\"connect\""), "{answer}");
    assert_eq!(gateway.in_flight(), 0);
}

#[tokio::test]
async fn what_may_have_been_done_is_never_done_again() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    for request in [GET, POST] {
        let mut client = gateway.send(request).await;
        let (workload, _) = pod.next().await;
        drop(workload);
        assert!(read_head(&mut client).await.starts_with("HTTP/1.1 502 "));
    }
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    workload.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 503 Busy"), "the workload's own word, passed on");
    assert!(!pod.has_connections());
}

#[tokio::test]
async fn a_connection_that_went_stale_costs_no_safe_request() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    workload.write_all(OK).await.unwrap();
    whole(&mut client).await;
    client.write_all(GET).await.unwrap();
    read_head(&mut workload).await;
    drop(workload);
    let (mut workload, _) = pod.next().await;
    workload.write_all(OK).await.unwrap();
    whole(&mut client).await;
    client.write_all(POST).await.unwrap();
    read_head(&mut workload).await;
    drop(workload);
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn a_pod_that_stops_being_ready_loses_its_idle_connections() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    workload.write_all(OK).await.unwrap();
    whole(&mut client).await;
    gateway.pods(&[(pod.address, EndpointState::Leaving)]);
    let mut rest = Vec::new();
    timeout(SOON, workload.read_to_end(&mut rest)).await.unwrap().unwrap();
    client.write_all(GET).await.unwrap();
    let (mut workload, _) = pod.next().await;
    workload.write_all(OK).await.unwrap();
    whole(&mut client).await;
    timeout(SOON, workload.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, b"", "one that is going serves while none is ready, and keeps no connection");
}

#[tokio::test]
async fn what_was_asked_too_far_ahead_ends_the_connection_also_without_an_answer() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway.send(b"POST /v1/agents/ns/a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").await;
    let (workload, _) = pod.next().await;
    // More than the kernel buffers: the gateway has discarded a part of it when this returns.
    timeout(SOON, client.write_all(&GET.repeat(400_000))).await.unwrap().unwrap();
    drop(workload);
    let mut rest = String::new();
    timeout(SOON, client.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert!(rest.starts_with("HTTP/1.1 502 ") && rest.contains("Connection: close\r\n"), "{rest}");
    assert_eq!(rest.matches("HTTP/1.1 ").count(), 1, "{rest}");
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_said_so() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    gateway.object(Some(Object { timeout: Some(Duration::from_millis(20)), ..object() }));
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    let (answer, body) = whole(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 504 ") && body.contains("\"reason\":\"timeout\""), "{answer}");
    let mut rest = Vec::new();
    timeout(SOON, workload.read_to_end(&mut rest)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_workload_without_the_sidecar_cannot_speak_for_one() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    gateway.object(Some(Object { sidecar: false, ..object() }));
    let mut client = gateway.send(POST).await;
    let (mut workload, _) = pod.next().await;
    read_exactly(&mut workload, 4).await;
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\nx-recif-reason: draining\r\nx-recif-load: 9/1\r\n\r\nno";
    workload.write_all(busy.as_bytes()).await.unwrap();
    assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 503 Busy"));
    let _client = gateway.send(POST).await;
    read_head(&mut workload).await;
}

/// Response of another workload's sidecar, whose Pod got the address of an earlier Pod.
const MISDIRECTED: &[u8] =
    b"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 2\r\nx-recif-reason: misdirected\r\n\r\nno";

#[tokio::test]
async fn an_address_that_is_another_workloads_by_now_is_passed_over() {
    let (mut stranger, mut pod) = (TestPod::start().await, TestPod::start().await);
    let gateway = TestGateway::start(&[], &[stranger.address]).await;
    let request = b"POST /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";
    let mut client = gateway.send(request).await;
    let (mut other, seen) = stranger.next().await;
    assert_eq!(field(&seen, "X-Recif-Workload"), Some("agent/ns/a"), "{seen}");
    other.write_all(MISDIRECTED).await.unwrap();
    gateway.until_waiting(1).await;
    gateway.pods(&[(stranger.address, EndpointState::Ready), (pod.address, EndpointState::Ready)]);
    let (mut workload, _) = pod.next().await;
    assert_eq!(read_exactly(&mut workload, 2).await, "hi");
    workload.write_all(OK).await.unwrap();
    assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 200 "));
    // The connection to the wrong Pod is not used again.
    let mut rest = Vec::new();
    timeout(SOON, other.read_to_end(&mut rest)).await.unwrap().unwrap();
}
