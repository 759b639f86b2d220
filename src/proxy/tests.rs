//! The sidecar as its neighbours see it: real sockets on loopback, a workload that does as it is told.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    config::Config,
    serve::{Shared, accept},
};

/// Longest wait for anything.
const SOON: Duration = Duration::from_secs(10);

/// A proxy before a workload whose connections the test holds.
struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepted: mpsc::UnboundedReceiver<TcpStream>,
}

impl Proxy {
    async fn start(variables: &[(&str, &str)]) -> Self {
        let workload = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = format!("http://{}", workload.local_addr().unwrap());
        let (sender, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((io, _)) = workload.accept().await {
                if sender.send(io).is_err() {
                    return;
                }
            }
        });
        let config = Config::read(|name| match name {
            "RECIF_UPSTREAM_URL" => Some(upstream.clone()),
            "RECIF_KEY" => Some("key".to_owned()),
            _ => variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared::new(config.unwrap()).unwrap();
        tokio::spawn(accept(listener, shared.clone()));
        Self { address, shared, accepted }
    }

    async fn client(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// The workload's end of the next connection that is not only a probe, once a whole head has come on it.
    async fn workload(&mut self) -> (TcpStream, String) {
        loop {
            let mut io = timeout(SOON, self.accepted.recv()).await.unwrap().unwrap();
            if timeout(SOON, io.peek(&mut [0])).await.unwrap().unwrap() > 0 {
                let head = head(&mut io).await;
                return (io, head);
            }
        }
    }

    /// Everything that is answered to these bytes on a connection of their own, until it is closed.
    async fn answer(&self, bytes: &[u8]) -> String {
        let mut client = self.client().await;
        client.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        timeout(SOON, client.read_to_end(&mut answer)).await.unwrap().unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn until_in_flight(&self, expected: u32) {
        let reached = async {
            while self.shared.load.in_flight() != expected {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, reached).await.unwrap();
    }
}

/// Reads one head, byte by byte, so that nothing behind it is taken.
async fn head(io: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(timeout(SOON, io.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

async fn exactly(io: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    timeout(SOON, io.read_exact(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8(bytes).unwrap()
}

const GET: &[u8] = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn requests_go_through_on_connections_that_stay() {
    let mut proxy = Proxy::start(&[]).await;
    let mut client = proxy.client().await;
    client
        .write_all(b"GET /a%2Fb?c;d HTTP/1.1\r\nHost: h:1\r\nX-Forwarded-For: 192.0.2.1\r\nTE: x\r\n\r\n")
        .await
        .unwrap();
    let (mut workload, seen) = proxy.workload().await;
    assert_eq!(
        seen,
        "GET /a%2Fb?c;d HTTP/1.1\r\nHost: h:1\r\nX-Forwarded-For: 192.0.2.1, 127.0.0.1\r\nX-Forwarded-Host: h:1\r\n\
         X-Forwarded-Proto: http\r\n\r\n"
    );
    workload.write_all(OK).await.unwrap();
    assert_eq!(head(&mut client).await, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-recif-load: 1/0\r\n\r\n");
    assert_eq!(exactly(&mut client, 2).await, "ok");

    client.write_all(GET).await.unwrap();
    head(&mut workload).await;
    workload.write_all(OK).await.unwrap();
    head(&mut client).await;
    assert!(proxy.accepted.try_recv().is_err(), "the workload's connection was used again");
}

#[tokio::test]
async fn an_event_arrives_before_the_next_is_there() {
    let mut proxy = Proxy::start(&[]).await;
    let mut client = proxy.client().await;
    client.write_all(GET).await.unwrap();
    let (mut workload, _) = proxy.workload().await;
    workload.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    head(&mut client).await;
    for event in ["5\r\none\n\n\r\n", "5\r\ntwo\n\n\r\n"] {
        workload.write_all(event.as_bytes()).await.unwrap();
        assert_eq!(exactly(&mut client, event.len()).await, event);
    }
    assert_eq!(proxy.shared.load.in_flight(), 1, "a stream holds its slot");
    workload.write_all(b"0\r\n\r\n").await.unwrap();
    exactly(&mut client, 5).await;
    proxy.until_in_flight(0).await;
}

#[tokio::test]
async fn no_more_than_the_cap_reaches_the_workload() {
    let mut proxy = Proxy::start(&[("RECIF_CONCURRENCY", "1")]).await;
    let mut first = proxy.client().await;
    first.write_all(GET).await.unwrap();
    let (mut workload, _) = proxy.workload().await;
    let mut second = proxy.client().await;
    second.write_all(GET).await.unwrap();
    let refused = head(&mut second).await;
    assert!(refused.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refused}");
    assert!(refused.contains("x-recif-reason: over-capacity\r\nRetry-After: 1\r\n"), "{refused}");
    workload.write_all(OK).await.unwrap();
    head(&mut first).await;
    proxy.until_in_flight(0).await;
    // The refused client's connection stayed.
    let length = refused.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    exactly(&mut second, length.parse().unwrap()).await;
    second.write_all(GET).await.unwrap();
    head(&mut workload).await;
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_slot_and_the_workload_is_told() {
    let mut proxy = Proxy::start(&[("RECIF_CONCURRENCY", "1")]).await;
    for streaming in [false, true] {
        let mut client = proxy.client().await;
        client.write_all(GET).await.unwrap();
        let (mut workload, _) = proxy.workload().await;
        if streaming {
            workload.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await.unwrap();
            head(&mut client).await;
        }
        drop(client);
        proxy.until_in_flight(0).await;
        let mut rest = Vec::new();
        timeout(SOON, workload.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_seen_as_such() {
    let mut proxy = Proxy::start(&[]).await;
    let mut client = proxy.client().await;
    client.write_all(GET).await.unwrap();
    let (mut workload, _) = proxy.workload().await;
    workload.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").await.unwrap();
    head(&mut client).await;
    assert_eq!(exactly(&mut client, 3).await, "abc");
    drop(workload);
    let mut rest = Vec::new();
    let end = timeout(SOON, client.read_to_end(&mut rest)).await.unwrap();
    assert!(end.is_err() && rest.is_empty(), "a reset, not an end: {end:?}");
}

#[tokio::test]
async fn a_connection_that_went_stale_costs_no_request() {
    let mut proxy = Proxy::start(&[]).await;
    let mut client = proxy.client().await;
    client.write_all(GET).await.unwrap();
    let (mut workload, _) = proxy.workload().await;
    workload.write_all(OK).await.unwrap();
    head(&mut client).await;
    exactly(&mut client, 2).await;
    client.write_all(GET).await.unwrap();
    head(&mut workload).await;
    // It takes the request and closes: only a safe one may be sent again.
    drop(workload);
    let (mut workload, again) = proxy.workload().await;
    assert!(again.starts_with("GET /x "), "{again}");
    workload.write_all(OK).await.unwrap();
    head(&mut client).await;
    exactly(&mut client, 2).await;
    client.write_all(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    head(&mut workload).await;
    drop(workload);
    assert!(head(&mut client).await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn another_protocol_is_carried_both_ways() {
    let mut proxy = Proxy::start(&[]).await;
    let mut client = proxy.client().await;
    let request = b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\nearly";
    client.write_all(request).await.unwrap();
    let (mut workload, seen) = proxy.workload().await;
    assert!(seen.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"), "{seen}");
    workload
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        .await
        .unwrap();
    let answer = head(&mut client).await;
    assert!(answer.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"), "{answer}");
    assert_eq!(exactly(&mut client, 2).await, "hi");
    assert_eq!(exactly(&mut workload, 5).await, "early");
    client.write_all(b"ping").await.unwrap();
    assert_eq!(exactly(&mut workload, 4).await, "ping");
    assert_eq!(proxy.shared.load.in_flight(), 1);
    drop(client);
    drop(workload);
    proxy.until_in_flight(0).await;
}

#[tokio::test]
async fn bad_requests_are_answered_and_never_passed_on() {
    let mut proxy = Proxy::start(&[]).await;
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\nB: c\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: content-length\r\n\r\n", 400),
    ] {
        let answer = proxy.answer(request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        assert!(answer.contains("Connection: close\r\n"), "{answer}");
    }
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(70_000));
    assert!(proxy.answer(long.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    assert!(proxy.accepted.try_recv().is_err());
}

#[tokio::test]
async fn bad_chunks_are_refused_where_they_begin() {
    let mut proxy = Proxy::start(&[]).await;
    let mut client = proxy.client().await;
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0x3\r\n")
        .await
        .unwrap();
    let (mut workload, _) = proxy.workload().await;
    assert!(head(&mut client).await.starts_with("HTTP/1.1 400 "));
    let mut rest = String::new();
    timeout(SOON, workload.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert!(!rest.ends_with("0\r\n\r\n"), "{rest:?}");
}

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
    let upstream = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let mut proxy = Proxy::start(&[]).await;
    let config = Config::read(|name| (name == "RECIF_UPSTREAM_URL").then(|| upstream.clone())).unwrap();
    proxy.shared = Shared::new(config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    proxy.address = listener.local_addr().unwrap();
    tokio::spawn(accept(listener, proxy.shared.clone()));
    let ready = proxy.answer(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    let answer = proxy.answer(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

fn hook(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Recif-Key: key\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn a_pod_that_goes_serves_as_before_then_refuses_and_waits_for_what_is_in_flight() {
    let mut proxy = Proxy::start(&[("RECIF_LAME_DUCK", "500ms"), ("RECIF_SHUTDOWN_TIMEOUT", "20s")]).await;
    let mut stream = proxy.client().await;
    stream.write_all(GET).await.unwrap();
    let (mut held, _) = proxy.workload().await;
    held.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    head(&mut stream).await;

    assert!(proxy.answer(hook("/_recif/lame-duck").as_bytes()).await.starts_with("HTTP/1.1 200 "));
    let mut drain = proxy.client().await;
    drain.write_all(hook("/_recif/drain").as_bytes()).await.unwrap();
    let ready = proxy.answer(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(ready.starts_with("HTTP/1.1 200 "), "a lame duck stays ready");
    let mut late = proxy.client().await;
    late.write_all(GET).await.unwrap();
    let (mut workload, _) = proxy.workload().await;
    workload.write_all(OK).await.unwrap();
    assert!(head(&mut late).await.contains("Connection: close\r\n"), "served, and asked to go elsewhere next time");

    let refused = async {
        loop {
            let answer = proxy.answer(b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            tokio::select! {
                answer = answer => if answer.starts_with("HTTP/1.1 503 ") { return answer },
                // Still a lame duck: the workload got it.
                () = sleep(Duration::from_millis(100)) => {}
            }
        }
    };
    let answer = timeout(SOON, refused).await.unwrap();
    assert!(answer.contains("x-recif-reason: draining\r\nRetry-After: 1\r\n"), "{answer}");
    held.write_all(b"1\r\na\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(exactly(&mut stream, 11).await, "1\r\na\r\n0\r\n\r\n", "no stream was cut");
    assert!(head(&mut drain).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(proxy.shared.load.in_flight(), 0);
}

#[tokio::test]
async fn what_does_not_end_in_time_is_cut_off() {
    let mut proxy = Proxy::start(&[("RECIF_LAME_DUCK", "50ms"), ("RECIF_SHUTDOWN_TIMEOUT", "100ms")]).await;
    let mut client = proxy.client().await;
    client.write_all(GET).await.unwrap();
    let (_held, _) = proxy.workload().await;
    proxy.answer(hook("/_recif/lame-duck").as_bytes()).await;
    let mut rest = Vec::new();
    let end = timeout(SOON, client.read_to_end(&mut rest)).await.unwrap();
    assert!(end.is_err(), "{end:?} {rest:?}");
    proxy.until_in_flight(0).await;
}
