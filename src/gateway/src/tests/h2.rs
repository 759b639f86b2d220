//! Tests of HTTP/2, with hyper as the client.

use bytes::Bytes;
use http::{Request, StatusCode, Version, header};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::http2::{SendRequest, handshake},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use super::*;

pub(super) type Sender = SendRequest<BoxBody<Bytes, std::convert::Infallible>>;

/// Creates a client that speaks HTTP/2 on this connection.
pub(super) async fn client(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Sender {
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(super) fn get(path: &str) -> Request<BoxBody<Bytes, std::convert::Infallible>> {
    Request::get(format!("http://h.example{path}")).body(Empty::new().boxed()).unwrap()
}

async fn frame(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    timeout(SOON, body.frame()).await.unwrap()
}

async fn data(body: &mut Incoming) -> Bytes {
    frame(body).await.unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn a_request_of_http2_takes_the_way_of_every_other() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = client(gateway.client().await).await;
    let mut request = get("/v1/agents/ns/a//x%2Fy;z?q=1");
    for crumb in ["a=1", "b=2"] {
        request.headers_mut().append(header::COOKIE, crumb.parse().unwrap());
    }
    request.headers_mut().insert("x-recif-user", "root".parse().unwrap());
    let answer = tokio::spawn(client.send_request(request));
    let (mut io, head) = pod.next().await;
    assert!(head.starts_with("GET //x%2Fy;z?q=1 HTTP/1.1\r\n"), "{head}");
    for (name, value) in [
        ("host", Some("h.example")),
        ("cookie", Some("a=1; b=2")),
        ("x-forwarded-prefix", Some("/v1/agents/ns/a")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-recif-user", None),
        ("transfer-encoding", None),
    ] {
        assert_eq!(field(&head, name), value, "{name} in {head}");
    }
    io.write_all(OK).await.unwrap();
    let answer = timeout(SOON, answer).await.unwrap().unwrap().unwrap();
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, Version::HTTP_2));
    assert!(answer.headers().get("x-recif-load").is_none());
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
    gateway.until_in_flight(0).await;
}

#[tokio::test]
async fn bodies_stream_both_ways_and_answers_keep_their_trailers() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = client(gateway.client().await).await;
    let (sender, frames) = mpsc::unbounded_channel::<Frame<Bytes>>();
    let frames = futures::stream::unfold(frames, |mut frames| async { Some((Ok(frames.recv().await?), frames)) });
    let request = Request::post("http://h/v1/agents/ns/a/x").header("trailer", "x-sum").header("te", "trailers");
    let request = request.body(StreamBody::new(Box::pin(frames)).boxed()).unwrap();
    let answer = tokio::spawn(client.send_request(request));
    sender.send(Frame::data("one".into())).unwrap();
    let (mut io, head) = pod.next().await;
    assert_eq!(field(&head, "transfer-encoding"), Some("chunked"), "{head}");
    assert_eq!(field(&head, "trailer"), None, "{head}");
    assert_eq!(read_exactly(&mut io, 8).await, "3\r\none\r\n");
    io.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nuno\r\n").await.unwrap();
    let mut body = timeout(SOON, answer).await.unwrap().unwrap().unwrap().into_body();
    assert_eq!(data(&mut body).await, "uno", "an answer does not wait for the end of its request");
    sender.send(Frame::data("two".into())).unwrap();
    assert_eq!(read_exactly(&mut io, 8).await, "3\r\ntwo\r\n");
    let sum = http::HeaderMap::from_iter([(header::HeaderName::from_static("x-sum"), "6".parse().unwrap())]);
    sender.send(Frame::trailers(sum)).unwrap();
    drop(sender);
    assert_eq!(read_exactly(&mut io, 5).await, "0\r\n\r\n");
    io.write_all(b"3\r\ndos\r\n0\r\nX-Cost: 7\r\n\r\n").await.unwrap();
    assert_eq!(data(&mut body).await, "dos");
    let trailers = frame(&mut body).await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["x-cost"], "7");
    assert!(frame(&mut body).await.is_none());
    gateway.until_in_flight(0).await;
}

#[tokio::test]
async fn a_stream_that_is_reset_ends_at_the_pod() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = client(gateway.client().await).await;
    // Before the response, and in the middle of it.
    for begun in [false, true] {
        let answer = tokio::spawn(client.send_request(get("/v1/agents/ns/a/x")));
        let (mut io, _) = pod.next().await;
        if begun {
            io.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nuno\r\n").await.unwrap();
            let mut answer = timeout(SOON, answer).await.unwrap().unwrap().unwrap();
            assert_eq!(data(answer.body_mut()).await, "uno");
            drop(answer);
        } else {
            answer.abort();
        }
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = timeout(SOON, io.read_to_end(&mut rest)).await.unwrap();
        gateway.until_in_flight(0).await;
    }
    let answer = tokio::spawn(client.send_request(get("/v1/agents/ns/a/x")));
    pod.next().await.0.write_all(OK).await.unwrap();
    assert_eq!(timeout(SOON, answer).await.unwrap().unwrap().unwrap().status(), 200, "the connection goes on");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = client(gateway.client().await).await;
    for start in ["Content-Length: 9\r\n\r\nuno", "Transfer-Encoding: chunked\r\n\r\n3\r\nuno\r\n"] {
        let answer = tokio::spawn(client.send_request(get("/v1/agents/ns/a/x")));
        let (mut io, _) = pod.next().await;
        io.write_all(format!("HTTP/1.1 200 OK\r\n{start}").as_bytes()).await.unwrap();
        let mut body = timeout(SOON, answer).await.unwrap().unwrap().unwrap().into_body();
        assert_eq!(data(&mut body).await, "uno");
        drop(io);
        assert!(frame(&mut body).await.unwrap().is_err(), "{start}");
    }
}

#[tokio::test]
async fn one_connection_carries_many_requests_at_once() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let client = client(gateway.client().await).await;
    let answers: Vec<_> = (0..100)
        .map(|number| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let answer = client.send_request(get(&format!("/v1/agents/ns/a/{number}"))).await.unwrap();
                assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), format!("{number:0>3}"));
            })
        })
        .collect();
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(pod.next().await);
    }
    assert_eq!(gateway.in_flight(), 100);
    for (io, head) in &mut open {
        let number = head.strip_prefix("GET /").unwrap().split(' ').next().unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{number:0>3}");
        io.write_all(answer.as_bytes()).await.unwrap();
    }
    for answer in answers {
        timeout(SOON, answer).await.unwrap().unwrap();
    }
    gateway.until_in_flight(0).await;
}

#[tokio::test]
async fn refusals_are_told_in_http2() {
    let gateway = TestGateway::start(&[], &[]).await;
    let mut client = client(gateway.client().await).await;
    let mut two_hosts = get("/v1/agents/ns/a/x");
    two_hosts.headers_mut().insert("host", "other".parse().unwrap());
    let connect = Request::connect("h.example:80").body(Empty::new().boxed()).unwrap();
    let body = Request::put("http://h/v1/agents/ns/none").body(Full::from("x").boxed()).unwrap();
    for (request, status, reason) in [
        (get("/v1/agents/ns/a/../b"), 400, "bad-request"),
        (get("/v1/agents/ns/a/metrics"), 404, "unknown"),
        (body, 404, "unknown"),
        (two_hosts, 400, "bad-request"),
        (connect, 501, "bad-request"),
    ] {
        let shown = format!("{request:?}");
        let answer = timeout(SOON, client.send_request(request)).await.unwrap().unwrap();
        assert_eq!(answer.status(), status, "{shown}");
        if reason != "unknown" {
            assert_eq!(answer.headers()["x-recif-reason"], reason, "{shown}");
        }
        assert!(answer.headers().get("connection").is_none());
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(text["error"].is_string() && text["reason"].is_string(), "{text}");
    }
}

#[tokio::test]
async fn a_gateway_that_leaves_sends_its_clients_away_and_ends_what_they_began() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = client(gateway.client().await).await;
    let answer = tokio::spawn(client.send_request(get("/v1/agents/ns/a/x")));
    let (mut io, _) = pod.next().await;
    gateway.shared.leaving.store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = async {
        while client.send_request(get("/nothing")).await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, refused).await.unwrap();
    io.write_all(OK).await.unwrap();
    let answer = timeout(SOON, answer).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn what_only_looks_like_http2_is_refused() {
    let gateway = TestGateway::start(&[], &[]).await;
    let answer = gateway.answer(b"PRI * HTTP/2.0\r\nHost: h\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    let answer = gateway.answer(b"GET /v1/x HTTP/1.1\r\nHost: h\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert_eq!(answer.matches("\r\nContent-Length: ").count(), 2, "only the first bytes count: {answer}");
}
