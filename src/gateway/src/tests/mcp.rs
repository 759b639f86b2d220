//! Tests of MCP servers: session affinity without stored state.

use super::*;
use crate::sessions::PodTag;

impl TestGateway {
    /// Sets the Pods of `MCPServer ns/m`; the uid of each is its address.
    fn mcp(&self, pods: &[(SocketAddr, EndpointState)]) {
        let routes = &self.shared.routes;
        routes.object(RoutedKind::McpServer, &Key::new("ns", "m"), Some(Arc::new(object())));
        let endpoint = |(address, state): &(SocketAddr, EndpointState)| PodEndpoint {
            uid: address.to_string().into(),
            address: *address,
            state: *state,
        };
        let endpoints = pods.iter().map(endpoint).collect();
        let slice =
            WorkloadEndpoints { workload: Some((RoutedKind::McpServer, "m".into())), service: "s".into(), endpoints };
        routes.slice(&Key::new("ns", "m-x"), None, Some(&Arc::new(slice)));
    }
}

fn post(fields: &str) -> String {
    format!("POST /v1/mcp/ns/m/mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n{fields}\r\n{{}}")
}

/// Returns the session id that clients see for a session of this Pod.
fn known(pod: SocketAddr, id: &str) -> String {
    format!("{}.{id}", str::from_utf8(PodTag::of(&pod.to_string()).as_bytes()).unwrap())
}

#[tokio::test]
async fn a_session_is_named_with_its_pod_and_stays_there() {
    let (mut a, b) = (TestPod::start().await, TestPod::start().await);
    let gateway = TestGateway::start(&[], &[]).await;
    gateway.mcp(&[(a.address, EndpointState::Ready)]);
    let mut client = gateway.send(post("").as_bytes()).await;
    let (mut server, seen) = a.next().await;
    assert!(seen.starts_with("POST /mcp HTTP/1.1\r\n") && field(&seen, "Mcp-Session-Id").is_none(), "{seen}");
    read_exactly(&mut server, 2).await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nMCP-session-ID: s.1\r\n\r\nok";
    server.write_all(answer).await.unwrap();
    let (head_of_answer, _) = whole(&mut client).await;
    let name = known(a.address, "s.1");
    assert_eq!(field(&head_of_answer, "mcp-session-id"), Some(name.as_str()), "{head_of_answer}");

    // Other Pods may be idle, and the session's own Pod may no longer be ready.
    for state in [EndpointState::Ready, EndpointState::Leaving, EndpointState::Unready] {
        gateway.mcp(&[(a.address, state), (b.address, EndpointState::Ready)]);
        client.write_all(post(&format!("mcp-session-id: {name}\r\n")).as_bytes()).await.unwrap();
        let seen = match state {
            EndpointState::Ready => read_head(&mut server).await,
            _ => {
                let (io, seen) = a.next().await;
                server = io;
                seen
            }
        };
        assert_eq!(field(&seen, "Mcp-Session-Id"), Some("s.1"), "{seen}");
        read_exactly(&mut server, 2).await;
        server.write_all(answer).await.unwrap();
        let (head_of_answer, _) = whole(&mut client).await;
        assert_eq!(field(&head_of_answer, "mcp-session-id"), Some(name.as_str()));
    }
}

#[tokio::test]
async fn an_unknown_session_is_refused_in_the_protocol() {
    let (mut a, gone) = (TestPod::start().await, ClosedPort::bind());
    let gateway = TestGateway::start(&[], &[]).await;
    gateway.mcp(&[(a.address, EndpointState::Ready)]);
    for name in ["s", "0123456789.", &known(gone.address, "s")] {
        let answer = gateway.answer(post(&format!("Mcp-Session-Id: {name}\r\nConnection: close\r\n")).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("\"code\":-32001"), "{name}: {answer}");
    }
    assert!(!a.has_connections());
}

#[tokio::test]
async fn what_a_sessions_pod_refuses_is_not_asked_of_another() {
    let (mut a, mut b) = (TestPod::start().await, TestPod::start().await);
    let gateway = TestGateway::start(&[], &[]).await;
    gateway.mcp(&[(a.address, EndpointState::Ready), (b.address, EndpointState::Ready)]);
    let name = known(a.address, "s");
    let mut client = gateway.send(post(&format!("Mcp-Session-Id: {name}\r\n")).as_bytes()).await;
    let (mut server, _) = a.next().await;
    read_exactly(&mut server, 2).await;
    server.write_all(FULL).await.unwrap();
    let (answer, _) = whole(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && !b.has_connections(), "{answer}");
}

#[tokio::test]
async fn a_pod_without_room_for_another_session_is_passed_over_and_the_last_one_is_heard() {
    const NO_SESSION: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 4\r\n\
        x-recif-reason: no-session\r\n\r\nfull";
    const ROOM: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let (mut a, mut b) = (TestPod::start().await, TestPod::start().await);
    let gateway = TestGateway::start(&[], &[]).await;
    gateway.mcp(&[(a.address, EndpointState::Ready), (b.address, EndpointState::Ready)]);
    let answers = async |pod: &mut TestPod, answer: &[u8]| {
        let (mut server, _) = pod.next().await;
        read_exactly(&mut server, 2).await;
        server.write_all(answer).await.unwrap();
    };
    // With room in the second Pod, and with room in none: then the last response is passed on, and no request is
    // queued.
    for (second, status) in [(ROOM, "HTTP/1.1 200 "), (NO_SESSION, "HTTP/1.1 503 ")] {
        let mut client = gateway.send(post("").as_bytes()).await;
        tokio::select! {
            () = answers(&mut a, NO_SESSION) => answers(&mut b, second).await,
            () = answers(&mut b, NO_SESSION) => answers(&mut a, second).await,
        }
        let (answer, _) = whole(&mut client).await;
        assert!(answer.starts_with(status), "{answer}");
    }
}

#[tokio::test]
async fn a_full_pod_is_asked_once_when_another_has_no_room_for_a_session() {
    const NO_SESSION: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 4\r\n\
        x-recif-reason: no-session\r\n\r\nfull";
    const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 4\r\n\
        x-recif-reason: over-capacity\r\n\r\nbusy";
    let (mut a, mut b) = (TestPod::start().await, TestPod::start().await);
    let gateway = TestGateway::start(&[], &[]).await;
    gateway.mcp(&[(a.address, EndpointState::Ready), (b.address, EndpointState::Ready)]);
    let mut client = gateway.send(post("").as_bytes()).await;
    let answers = async |pod: &mut TestPod, answer: &[u8]| {
        let (mut server, _) = pod.next().await;
        read_exactly(&mut server, 2).await;
        server.write_all(answer).await.unwrap();
    };
    let mut asked = 0;
    let (answer, _) = loop {
        tokio::select! {
            biased;
            () = answers(&mut b, FULL) => asked += 1,
            () = answers(&mut a, NO_SESSION) => {}
            answer = whole(&mut client) => break answer,
        }
        assert!(asked < 2, "the full one is asked again and again");
    };
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("no-session"), "{answer}");
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn later_revisions_have_no_sessions() {
    let mut a = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[]).await;
    gateway.mcp(&[(a.address, EndpointState::Ready)]);
    let fields = "Mcp-Session-Id: s\r\nMCP-Protocol-Version: 2026-07-28\r\n";
    let _client = gateway.send(post(fields).as_bytes()).await;
    let (_, seen) = a.next().await;
    assert_eq!(field(&seen, "Mcp-Session-Id"), Some("s"), "{seen}");
}

#[tokio::test]
async fn what_protects_a_server_is_asked_for_at_the_root() {
    let mut a = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[]).await;
    gateway.mcp(&[(a.address, EndpointState::Ready)]);
    let target = "/.well-known/oauth-protected-resource/v1/mcp/ns/m";
    let _client = gateway.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await;
    let (_, seen) = a.next().await;
    assert!(seen.starts_with("GET /.well-known/oauth-protected-resource HTTP/1.1\r\n"), "{seen}");
    assert_eq!(field(&seen, "X-Forwarded-Prefix"), Some("/v1/mcp/ns/m"));
}
