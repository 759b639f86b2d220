//! Differential tests against hyper's server. A message that is accepted here must mean the same to hyper, which may
//! well serve the workload. Messages that hyper accepts and this crate refuses are refused on purpose, and listed here.

use std::convert::Infallible;

use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    sync::mpsc,
};

use crate::{BodyScanner, Fields, InvalidMessage, RequestHead, entries, head_length};

/// Method, path and query, and content of a request.
type Meaning = (String, String, Vec<u8>);

/// Returns hyper's reading of the first request, or `None` if hyper refuses it or it is incomplete.
fn theirs(bytes: &[u8]) -> Option<Meaning> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = duplex(1 << 20);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let (sender, mut seen) = mpsc::unbounded_channel();
        let service = service_fn(|request: http::Request<Incoming>| {
            let sender = sender.clone();
            async move {
                let target = request.uri().path_and_query().map_or("*", |target| target.as_str()).to_owned();
                let method = request.method().to_string();
                let body = request.into_body().collect().await.ok().map(|body| body.to_bytes().to_vec());
                sender.send(body.map(|body| (method, target, body))).unwrap();
                Ok::<_, Infallible>(http::Response::new(Empty::<bytes::Bytes>::new()))
            }
        });
        // The end of the connection depends on the bytes that follow.
        let _ = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service).await;
        seen.try_recv().ok().flatten()
    })
}

/// Returns this crate's reading of the first request. `Err(None)` means that it is incomplete.
fn ours(bytes: &[u8]) -> Result<Meaning, Option<InvalidMessage>> {
    let mut fields = Fields::default();
    let length = head_length(bytes, &mut 0)?.ok_or(None)?;
    let head = RequestHead::read(&bytes[..length], &mut fields)?;
    let mut data = Vec::new();
    let mut body = BodyScanner::new(head.framing);
    body.advance_with(&bytes[length..], |run| data.extend_from_slice(run)).map_err(|(_, bad)| bad)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    if body.has_ended() { Ok((text(head.method), text(head.target), data)) } else { Err(None) }
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Lists messages that hyper accepts and this crate refuses, because some other parser may read them differently.
fn stricter() -> Vec<(String, InvalidMessage)> {
    let get = |fields: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    vec![
        // Lines that end in LF alone, and empty lines before the first.
        (get("A: b\nB: c\r\n"), InvalidMessage::LineEnd),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n".into(), InvalidMessage::LineEnd),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), InvalidMessage::StartLine),
        // Ambiguous host.
        ("GET / HTTP/1.1\r\n\r\n".into(), InvalidMessage::Host),
        (get("Host: b\r\n"), InvalidMessage::Host),
        (line("GET http://b/ HTTP/1.1"), InvalidMessage::Host),
        // Ambiguous length.
        (get("Content-Length: 0\r\nContent-Length: 0\r\n"), InvalidMessage::Length),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            InvalidMessage::Coding,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n".into(),
            InvalidMessage::Coding,
        ),
        (format!("{CHUNKED}1 \r\na\r\n0\r\n\r\n"), InvalidMessage::ChunkSize),
        // Ambiguous path.
        (line("GET /a/../b HTTP/1.1"), InvalidMessage::DotSegment),
        (line("GET /%2e%2e HTTP/1.1"), InvalidMessage::DotSegment),
        (line("GET /a#b HTTP/1.1"), InvalidMessage::Target),
        // A method that is not served, or a protected field named as hop-by-hop.
        (line("get / HTTP/1.1"), InvalidMessage::Method),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".into(), InvalidMessage::Connect),
        (get("Connection: authorization\r\n"), InvalidMessage::ConnectionNames),
    ]
}

#[test]
fn what_hyper_lets_pass_and_we_do_not_is_known() {
    for (text, bad) in stricter() {
        assert!(theirs(text.as_bytes()).is_some(), "hyper refuses it too: {text:?}");
        assert_eq!(ours(text.as_bytes()), Err(Some(bad)), "{text:?}");
    }
}

#[test]
fn what_we_let_pass_and_hyper_does_not_is_known() {
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(110));
    for text in [
        // Characters that a URI must encode, which many clients do not.
        "GET /a<b HTTP/1.1\r\nHost: a\r\n\r\n",
        // hyper accepts 100 fields, this crate 128.
        many.as_str(),
    ] {
        assert!(ours(text.as_bytes()).is_ok(), "{text:?}");
        assert_eq!(theirs(text.as_bytes()), None, "{text:?}");
    }
}

/// Checks that an HTTP/1.0 client gets no chunked coding, neither from a server that streams nor from this relay.
#[test]
fn an_older_client_is_answered_as_hyper_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let request = b"GET / HTTP/1.0\r\nHost: a\r\n\r\n";
    let theirs = runtime.block_on(async {
        let (mut client, server) = duplex(1 << 20);
        client.write_all(request).await.unwrap();
        let service = service_fn(|_: http::Request<Incoming>| async {
            let parts = ["hel", "lo"].map(|part| Ok::<_, Infallible>(Frame::data(bytes::Bytes::from(part))));
            Ok::<_, Infallible>(http::Response::new(StreamBody::new(futures::stream::iter(parts))))
        });
        http1::Builder::new().serve_connection(TokioIo::new(server), service).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    });
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let (_, ours, _) = entries::relayed(request, chunked, 7).unwrap();
    for answer in [theirs, String::from_utf8(ours).unwrap()] {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
        assert_eq!(body, "hello", "{head}");
    }
}

fn requests() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /a?b=%2F HTTP/1.1\r\n",
        "PUT http://a/x HTTP/1.1\r\n",
        "POST / HTTP/1.0\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "DELETE //a;b HTTP/1.1\r\n",
        "get / HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET / HTTP/1.2\r\n",
        "GET /../a HTTP/1.1\r\n",
        "\r\nGET / HTTP/1.1\r\n",
    ]);
    let field = prop::sample::select(vec![
        "Host: a\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: 05\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "transfer-encoding:Chunked\r\n",
        "Connection: close\r\n",
        "Connection: upgrade\r\nUpgrade: x\r\n",
        "A: b\n",
        "A : b\r\n",
        "A: b\r\n c\r\n",
        "A: \0\r\n",
        "Expect: 100-continue\r\n",
        "A: \u{e9}\t\r\n",
    ]);
    let body = prop::sample::select(vec![
        "",
        "hello",
        "hello, world",
        "5\r\nhello\r\n0\r\n\r\n",
        "5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\n",
        "05\r\nhello\r\n00\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "ffffffffffffffffff\r\n",
    ]);
    (line, prop::bool::weighted(0.9), prop::collection::vec(field, 0..4), body).prop_map(
        |(line, host, fields, body)| {
            let host = if host { "Host: a\r\n" } else { "" };
            format!("{line}{host}{}\r\n{body}", fields.concat())
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_passes_means_the_same_to_hyper(text in requests()) {
        match (ours(text.as_bytes()), theirs(text.as_bytes())) {
            (Ok(ours), theirs) => prop_assert_eq!(theirs, Some(ours), "{:?}", text),
            (Err(Some(bad)), Some(_)) => {
                prop_assert!(stricter().iter().any(|(_, known)| *known == bad), "{:?}: {:?}", bad, text);
            }
            (Err(_), _) => {}
        }
    }
}
