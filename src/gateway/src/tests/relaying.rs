//! Tests of forwarding: the bytes that a Pod gets, and those that a client gets.

use super::*;
use crate::{
    auth::tests::gate,
    serve::{accept_on_all, bind, serve_connection},
};

#[tokio::test]
async fn exactly_the_prefix_is_taken_off_and_everything_else_is_passed_on() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = format!(
        "GET /v1/agents/ns/a//b%2Fc;d?e=/.. HTTP/1.1\r\nHost: h:1\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: evil\r\n\
         traceparent: {trace}\r\nX-Recif-User: root\r\nX-Recif-Key: k\r\nAuthorization: Bearer t\r\nA: b\r\n\r\n"
    );
    let mut client = gateway.send(request.as_bytes()).await;
    let (mut workload, seen) = pod.next().await;
    assert_eq!(
        seen,
        format!(
            "GET //b%2Fc;d?e=/.. HTTP/1.1\r\nHost: h:1\r\ntraceparent: {trace}\r\nAuthorization: Bearer t\r\nA: b\r\n\
             X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\nX-Forwarded-Host: h:1\r\nX-Forwarded-Proto: http\r\n\
             X-Forwarded-Prefix: /v1/agents/ns/a\r\nx-recif-via: gw\r\nX-Recif-Workload: agent/ns/a\r\n\
             TE: trailers\r\nConnection: TE\r\n\r\n"
        )
    );
    workload.write_all(OK).await.unwrap();
    let (answer, body) = whole(&mut client).await;
    assert_eq!((answer.as_str(), body.as_str()), ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok"));

    let wrong = b"GET /v1/agents/ns/a?x HTTP/1.1\r\nHost: h\r\ntraceparent: not-valid\r\ntracestate: a=b\r\n\r\n";
    client.write_all(wrong).await.unwrap();
    let seen = read_head(&mut workload).await;
    assert!(seen.starts_with("GET /?x HTTP/1.1\r\n"), "on the same connection: {seen}");
    // The runtime begins a trace; one that begins here unsampled would keep it from recording.
    assert!(!seen.contains("traceparent") && !seen.contains("tracestate"), "{seen}");
}

#[tokio::test]
async fn a_host_that_only_the_target_names_reaches_the_workload() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let _client = gateway.send(b"GET http://named.example/v1/agents/ns/a/x HTTP/1.0\r\n\r\n").await;
    let (_, seen) = pod.next().await;
    assert_eq!(field(&seen, "Host"), Some("named.example"), "{seen}");
}

#[tokio::test]
async fn a_trusted_proxy_says_what_came_before_it() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&["--trusted-proxies", "127.0.0.0/8"], &[pod.address]).await;
    let _client = gateway
        .send(
            b"GET /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: out.example\r\n\
              X-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /ai/\r\n\r\n",
        )
        .await;
    let (_, seen) = pod.next().await;
    assert_eq!(field(&seen, "X-Forwarded-For"), Some("192.0.2.1, 127.0.0.1"));
    assert_eq!(field(&seen, "X-Forwarded-Host"), Some("out.example"));
    assert_eq!(field(&seen, "X-Forwarded-Proto"), Some("https"));
    assert_eq!(field(&seen, "X-Forwarded-Prefix"), Some("/ai/v1/agents/ns/a"));
}

#[tokio::test]
async fn an_event_arrives_before_the_next_is_there() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    workload.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    read_head(&mut client).await;
    for event in ["5\r\ndata1\r\n", "5\r\ndata2\r\n", "0\r\n\r\n"] {
        workload.write_all(event.as_bytes()).await.unwrap();
        assert_eq!(read_exactly(&mut client, event.len()).await, event);
    }
    gateway.until_in_flight(0).await;
}

#[tokio::test]
async fn a_body_streams_to_the_workload() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client =
        gateway.send(b"POST /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let (mut workload, _) = pod.next().await;
    for chunk in ["3\r\nabc\r\n", "0\r\n\r\n"] {
        client.write_all(chunk.as_bytes()).await.unwrap();
        assert_eq!(read_exactly(&mut workload, chunk.len()).await, chunk);
    }
    workload.write_all(OK).await.unwrap();
    assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn another_protocol_is_carried_both_ways() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway
        .send(b"GET /v1/agents/ns/a/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly")
        .await;
    let (mut workload, seen) = pod.next().await;
    assert!(seen.ends_with("Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), "{seen}");
    let accepted = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi";
    workload.write_all(accepted).await.unwrap();
    read_head(&mut client).await;
    assert_eq!(read_exactly(&mut client, 2).await, "hi");
    assert_eq!(read_exactly(&mut workload, 5).await, "early");
    assert_eq!(gateway.in_flight(), 1);
    drop((client, workload));
    gateway.until_in_flight(0).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_seen_as_such() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    workload.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").await.unwrap();
    read_head(&mut client).await;
    assert_eq!(read_exactly(&mut client, 3).await, "abc");
    drop(workload);
    let mut rest = Vec::new();
    let end = timeout(SOON, client.read_to_end(&mut rest)).await.unwrap();
    assert!(end.is_err() && rest.is_empty(), "a reset, not an end: {end:?}");
}

#[tokio::test]
async fn a_client_that_leaves_is_felt_by_the_workload() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    for streaming in [false, true] {
        let mut client = gateway.send(GET).await;
        let (mut workload, _) = pod.next().await;
        if streaming {
            workload.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await.unwrap();
            read_head(&mut client).await;
        }
        drop(client);
        gateway.until_in_flight(0).await;
        let mut rest = Vec::new();
        timeout(SOON, workload.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn only_answers_below_500_count_as_invocations() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let invoked = || {
        let route = gateway.shared.routes.find(b"agents/ns/a").unwrap();
        route.workload.invoked_at.load(std::sync::atomic::Ordering::Relaxed)
    };
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    workload.write_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    whole(&mut client).await;
    assert_eq!(invoked(), 0);
    client.write_all(GET).await.unwrap();
    read_head(&mut workload).await;
    workload.write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    whole(&mut client).await;
    assert!(invoked() > 1_700_000_000_000, "milliseconds since 1970");
}

#[tokio::test]
async fn a_gateway_that_ends_finishes_what_it_began() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut idle = gateway.client().await;
    let mut client = gateway.send(GET).await;
    let (mut workload, _) = pod.next().await;
    gateway.shared.leaving.store(true, std::sync::atomic::Ordering::Relaxed);
    gateway.shared.closing.cancel();
    let mut rest = Vec::new();
    timeout(SOON, idle.read_to_end(&mut rest)).await.unwrap().unwrap();
    until_refused(gateway.address).await;
    workload.write_all(OK).await.unwrap();
    let (answer, body) = whole(&mut client).await;
    assert_eq!((field(&answer, "Connection"), body.as_str()), (Some("close"), "ok"));
    timeout(SOON, client.read_to_end(&mut rest)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_crosses_the_end_of_the_gateway_is_answered() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = gateway.client().await;
    gateway.shared.leaving.store(true, std::sync::atomic::Ordering::Relaxed);
    gateway.shared.closing.cancel();
    sleep(Duration::from_millis(100)).await;
    client.write_all(GET).await.unwrap();
    let (mut workload, _) = pod.next().await;
    workload.write_all(OK).await.unwrap();
    let (answer, body) = whole(&mut client).await;
    assert_eq!((field(&answer, "Connection"), body.as_str()), (Some("close"), "ok"));
}

async fn until_refused(address: SocketAddr) {
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(SOON, refused).await.unwrap();
}

#[tokio::test]
async fn one_client_has_no_more_in_flight_than_it_may() {
    let mut pod = TestPod::start().await;
    let gateway =
        TestGateway::start(&["--max-in-flight-per-client", "1", "--trusted-proxies", "127.0.0.1"], &[pod.address])
            .await;
    let from = |address: &str| format!("GET /v1/agents/ns/a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: {address}\r\n\r\n");
    let mut first = gateway.send(from("192.0.2.1, 127.0.0.1").as_bytes()).await;
    let (mut workload, _) = pod.next().await;
    let mut second = gateway.send(from("spoofed, 192.0.2.1").as_bytes()).await;
    let (refused, body) = whole(&mut second).await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && body.contains("\"reason\":\"too-many-requests\""), "{refused}");
    let _other = gateway.send(from("192.0.2.2").as_bytes()).await;
    pod.next().await;
    workload.write_all(OK).await.unwrap();
    whole(&mut first).await;
    second.write_all(from("192.0.2.1").as_bytes()).await.unwrap();
    read_head(&mut workload).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_thread_serves_until_the_process_ends() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(accept_on_all(vec![(listener, None)], gateway.shared.clone(), SOON));
    for _ in 0..20 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(GET).await.unwrap();
        let (mut workload, _) = pod.next().await;
        workload.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
        assert!(whole(&mut client).await.0.starts_with("HTTP/1.1 200 "));
    }
    gateway.shared.closing.cancel();
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
    until_refused(address).await;
}

#[tokio::test]
async fn an_open_stream_holds_little() {
    let gateway = TestGateway::start(&[], &[]).await;
    let peer = gateway.shared.peer([127, 0, 0, 1].into(), "http");
    let serving = serve_connection(gateway.client().await, &peer, &gateway.shared);
    assert!(size_of_val(&serving) <= 2000, "{}", size_of_val(&serving));
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_and_a_stream_end_soon_after_their_right_is_gone() {
    let mut pod = TestPod::start().await;
    let (roles, auth) = gate();
    let gateway = TestGateway::with_auth(auth, &[], &[pod.address]).await;
    let fields = "Host: h\r\nAuthorization: Bearer good-alice\r\n";
    let upgrade =
        format!("GET /v1/agents/ns/a/ws HTTP/1.1\r\n{fields}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut tunnel = gateway.send(upgrade.as_bytes()).await;
    let (mut socket, _) = pod.next().await;
    socket.write_all(b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await.unwrap();
    read_head(&mut tunnel).await;
    let mut stream = gateway.send(format!("GET /v1/agents/ns/a/events HTTP/1.1\r\n{fields}\r\n").as_bytes()).await;
    let (mut events, _) = pod.next().await;
    events.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    read_head(&mut stream).await;
    for _ in 0..10 {
        sleep(Duration::from_secs(60)).await;
        socket.write_all(b"ping").await.unwrap();
        assert_eq!(read_exactly(&mut tunnel, 4).await, "ping");
        events.write_all(b"1\r\na\r\n").await.unwrap();
        assert_eq!(read_exactly(&mut stream, 6).await, "1\r\na\r\n");
    }
    roles.revoked.store(true, std::sync::atomic::Ordering::Relaxed);
    let begun = tokio::time::Instant::now();
    for client in [&mut tunnel, &mut stream] {
        let mut rest = Vec::new();
        assert!(client.read_to_end(&mut rest).await.is_err() && rest.is_empty(), "aborted, not ended");
    }
    assert!(begun.elapsed() < Duration::from_secs(150), "{:?}", begun.elapsed());
    gateway.until_in_flight(0).await;
}

#[tokio::test]
async fn one_address_has_no_more_connections_than_it_may() {
    let mut pod = TestPod::start().await;
    let most = ["--max-connections-per-address", "2"];
    let gateway = TestGateway::start(&most, &[pod.address]).await;
    let (idle, mut served) = (gateway.client().await, gateway.send(GET).await);
    let (mut workload, _) = pod.next().await;
    let mut third = gateway.client().await;
    let mut rest = Vec::new();
    let end = timeout(SOON, third.read_to_end(&mut rest)).await.unwrap();
    assert!(end.is_ok() && rest.is_empty(), "closed at once: {end:?}");
    workload.write_all(OK).await.unwrap();
    assert!(whole(&mut served).await.0.starts_with("HTTP/1.1 200 "), "the others are not concerned");
    drop((idle, served));
    let again = async {
        loop {
            let mut client = gateway.send(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
            let mut answer = String::new();
            if client.read_to_string(&mut answer).await.is_ok() && answer.starts_with("HTTP/1.1 404 ") {
                return;
            }
        }
    };
    timeout(SOON, again).await.unwrap();

    let trusted =
        TestGateway::start(&[&most[..], &["--trusted-proxies", "127.0.0.0/8"]].concat(), &[pod.address]).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(trusted.send(GET).await);
        pod.next().await;
    }
}
