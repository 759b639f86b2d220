//! Tests of exchanges over connections in memory: the bytes that each side sees, however they are split.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    time::sleep,
};

use crate::*;

struct CopyHeads;

impl ResponsePolicy for CopyHeads {
    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>) {
        let writer = HeadWriter::response(head, Version::Http11, out).copy(head.bytes, head.fields, |_| false);
        if close { writer.field("Connection", "close") } else { writer }.end();
    }

    fn trailer(&mut self, name: &[u8], value: &[u8]) -> bool {
        let is_own = name == b"X-Own";
        assert!(!is_own || value == b"7", "{}", value.escape_ascii());
        !is_own
    }
}

const TIMEOUTS: Timeouts = Timeouts { first_byte: Duration::from_secs(60), idle: Duration::from_secs(300) };

/// Exchange in progress, and the far ends of its connections.
struct RunningExchange {
    client: DuplexStream,
    upstream: DuplexStream,
    end: tokio::task::JoinHandle<(ExchangeOutcome, Vec<u8>)>,
}

/// Starts an exchange. Its task returns the outcome, and the bytes read from the client beyond the request.
fn begin(request: ExchangeRequest) -> RunningExchange {
    let (client, near) = duplex(256);
    let (upstream, far) = duplex(256);
    let end = tokio::spawn(async move {
        let (mut near, mut far) = (Connection::new(near), Connection::new(far));
        far.outgoing = b"HEAD".to_vec();
        let timer = std::pin::pin!(sleep(Duration::from_secs(3600)));
        let end = Exchange::new(&mut near, &mut far, request, TIMEOUTS, CopyHeads).run(timer).await;
        (end, near.incoming)
    });
    RunningExchange { client, upstream, end }
}

fn request(framing: Framing) -> ExchangeRequest {
    ExchangeRequest {
        framing,
        keeps_alive: true,
        is_head: false,
        upgrades: false,
        may_leave_body: false,
        takes_trailers: true,
        version: Version::Http11,
    }
}

/// Sends this response in pieces of this size. Returns the bytes that the client gets, and the outcome.
async fn answered(request: ExchangeRequest, answer: &[u8], piece: usize) -> (String, ExchangeOutcome) {
    let RunningExchange { mut client, mut upstream, end } = begin(request);
    let mut head = [0; 4];
    upstream.read_exact(&mut head).await.unwrap();
    let answer = answer.to_vec();
    tokio::spawn(async move {
        for part in answer.chunks(piece) {
            // The exchange may have ended already.
            let _ = upstream.write_all(part).await;
            tokio::task::yield_now().await;
        }
    });
    let mut got = Vec::new();
    let mut end = end;
    loop {
        let mut buffer = [0; 64];
        tokio::select! {
            biased;
            read = client.read(&mut buffer) => match read.unwrap() {
                0 => break,
                length => got.extend_from_slice(&buffer[..length]),
            },
            ended = &mut end => {
                client.read_to_end(&mut got).await.unwrap();
                return (String::from_utf8(got).unwrap(), ended.unwrap().0);
            }
        }
    }
    (String::from_utf8(got).unwrap(), end.await.unwrap().0)
}

#[tokio::test]
async fn an_answer_arrives_as_it_was_sent_however_it_was_cut() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n";
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    let interim = "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 None\r\n\r\n";
    for answer in [chunked, length, interim] {
        for piece in 1..=answer.len() {
            let (got, end) = answered(request(Framing::Length(0)), answer.as_bytes(), piece).await;
            assert_eq!(got, answer, "in pieces of {piece}");
            assert!(
                matches!(end, ExchangeOutcome::Done { client: true, upstream: true }),
                "{end:?} in pieces of {piece}"
            );
        }
    }
}

#[tokio::test]
async fn an_answer_without_length_ends_with_the_connection() {
    let answer = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nabc";
    let (got, end) = answered(request(Framing::Length(0)), answer, 7).await;
    assert_eq!(got, "HTTP/1.1 200 OK\r\nA: b\r\nConnection: close\r\n\r\nabc");
    assert!(matches!(end, ExchangeOutcome::Done { client: false, upstream: false }), "{end:?}");
}

#[tokio::test]
async fn an_answer_that_can_have_no_body_has_none_whatever_its_head_says() {
    let head = ExchangeRequest { is_head: true, ..request(Framing::Length(0)) };
    for (request, status) in
        [(head, "200 OK"), (request(Framing::Length(0)), "204 None"), (request(Framing::Length(0)), "304 Same")]
    {
        for says in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
            let answer = format!("HTTP/1.1 {status}\r\n{says}\r\n\r\n");
            for piece in [1, 1000] {
                let (got, end) = answered(request, answer.as_bytes(), piece).await;
                assert_eq!(got, answer);
                assert!(matches!(end, ExchangeOutcome::Done { client: true, upstream: true }), "{end:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_older_client_gets_no_chunks() {
    let older = ExchangeRequest { version: Version::Http10, ..request(Framing::Length(0)) };
    let answer =
        b"HTTP/1.1 103 x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    for piece in [1, 5, 1000] {
        let (got, end) = answered(older, answer, piece).await;
        assert!(got.ends_with("\r\n\r\nabcde"), "{got:?}");
        assert!(matches!(end, ExchangeOutcome::Done { client: false, .. }), "{end:?}");
    }
}

#[tokio::test]
async fn what_follows_an_answer_is_not_passed_on_and_spoils_the_connection() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n";
    let (got, end) = answered(request(Framing::Length(0)), answer, 1000).await;
    assert!(got.ends_with("\r\n\r\na"), "{got:?}");
    assert!(matches!(end, ExchangeOutcome::Done { client: true, upstream: false }), "{end:?}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_cut_and_never_ended() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n",
    ] {
        for piece in [1, 1000] {
            let (got, end) = answered(request(Framing::Length(0)), answer.as_bytes(), piece).await;
            assert!(matches!(end, ExchangeOutcome::Truncated), "{answer:?}: {end:?}");
            assert!(!got.contains("0\r\n\r\n"), "{got:?}");
        }
    }
}

#[tokio::test]
async fn what_is_no_answer_can_still_be_answered_by_others() {
    for (answer, unanswered) in [("", true), ("HTTP/1.1 200", false), ("HTTP/1.1 103 x\r\n\r\n", false)] {
        let (got, end) = answered(request(Framing::Length(0)), answer.as_bytes(), 3).await;
        assert!(!got.contains("200"), "{got:?}");
        assert!(
            matches!(end, ExchangeOutcome::NoResponse { unanswered: u, unsent: false, .. } if u == unanswered),
            "{end:?}"
        );
    }
    for answer in ["HTTP/1.1 101 x\r\n\r\n", "garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n"] {
        let (got, end) = answered(request(Framing::Length(0)), answer.as_bytes(), 1000).await;
        assert_eq!(got, "");
        assert!(matches!(end, ExchangeOutcome::InvalidResponse(_)), "{end:?}");
    }
}

#[tokio::test]
async fn a_request_body_goes_through_and_what_follows_is_kept() {
    let RunningExchange { mut client, mut upstream, end } = begin(request(Framing::Chunked));
    client.write_all(b"3\r\nabc\r\n0\r\n\r\nGET /next").await.unwrap();
    let mut got = vec![0; 4 + 13];
    upstream.read_exact(&mut got).await.unwrap();
    assert_eq!(got, b"HEAD3\r\nabc\r\n0\r\n\r\n");
    upstream.write_all(b"HTTP/1.1 204 x\r\n\r\n").await.unwrap();
    let (end, kept) = end.await.unwrap();
    assert!(matches!(end, ExchangeOutcome::Done { client: true, upstream: true }), "{end:?}");
    assert_eq!(kept, b"GET /next");
}

#[tokio::test]
async fn trailers_of_a_request_stay_behind_however_they_are_cut() {
    for (body, passed) in [
        ("3\r\nabc\r\n0\r\nX-Recif-User: admin\r\nX-Pad:\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n"),
        ("0\r\nA:b\r\n\r\n", "0\r\n\r\n"),
        ("5;x=y\r\nA: b\n\r\n000\r\n\r\n", "5;x=y\r\nA: b\n\r\n000\r\n\r\n"),
    ] {
        for piece in 1..=body.len() {
            let RunningExchange { mut client, mut upstream, end } = begin(request(Framing::Chunked));
            for part in body.as_bytes().chunks(piece) {
                client.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            client.write_all(b"GET /next").await.unwrap();
            let mut got = vec![0; 4 + passed.len()];
            upstream.read_exact(&mut got).await.unwrap();
            assert_eq!(str::from_utf8(&got[4..]).unwrap(), passed, "in pieces of {piece}");
            upstream.write_all(b"HTTP/1.1 204 x\r\n\r\n").await.unwrap();
            let (end, kept) = end.await.unwrap();
            assert!(matches!(end, ExchangeOutcome::Done { client: true, upstream: true }), "{end:?}");
            assert!(b"GET /next".starts_with(&kept), "in pieces of {piece}: {}", kept.escape_ascii());
        }
    }
}

#[tokio::test]
async fn trailers_of_an_answer_reach_a_client_that_takes_them_but_those_that_the_relay_keeps() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let takes = request(Framing::Length(0));
    let refuses = ExchangeRequest { takes_trailers: false, ..takes };
    let older = ExchangeRequest { version: Version::Http10, ..takes };
    for (trailers, passed) in
        [("X-Own:  7 \r\nT: v\r\n", "T: v\r\n"), ("A:\r\nX-Own:7\r\n", "A:\r\n"), ("X-Own: 7\r\n", "")]
    {
        let answer = format!("{head}3\r\nabc\r\n0\r\n{trailers}\r\n");
        for (request, expected) in [
            (takes, format!("3\r\nabc\r\n0\r\n{passed}\r\n")),
            (refuses, "3\r\nabc\r\n0\r\n\r\n".to_owned()),
            (older, "abc".to_owned()),
        ] {
            for piece in 1..=answer.len() {
                let (got, end) = answered(request, answer.as_bytes(), piece).await;
                let (_, body) = got.split_once("\r\n\r\n").unwrap();
                assert_eq!(body, expected, "in pieces of {piece}");
                assert!(matches!(end, ExchangeOutcome::Done { upstream: true, .. }), "{end:?} in pieces of {piece}");
            }
        }
    }
}

#[tokio::test]
async fn trailers_that_break_off_are_not_passed_on() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\nX-Ow";
    for piece in [1, 3, 1000] {
        let (got, end) = answered(request(Framing::Length(0)), answer.as_bytes(), piece).await;
        assert!(matches!(end, ExchangeOutcome::Truncated), "{end:?}");
        assert!(got.ends_with("3\r\nabc\r\n0\r\n"), "{got:?}");
    }
}

#[tokio::test]
async fn a_body_larger_than_all_buffers_arrives_whole() {
    let size = 300_000;
    let RunningExchange { mut client, mut upstream, end } = begin(request(Framing::Length(size)));
    let sender = tokio::spawn(async move {
        client.write_all(&vec![b'x'; size as usize]).await.unwrap();
        client
    });
    let mut got = vec![0; 4 + size as usize];
    upstream.read_exact(&mut got).await.unwrap();
    upstream.write_all(b"HTTP/1.1 204 x\r\n\r\n").await.unwrap();
    assert!(matches!(end.await.unwrap().0, ExchangeOutcome::Done { client: true, upstream: true }));
    drop(sender.await.unwrap());
}

#[tokio::test]
async fn an_answer_before_the_request_is_through_ends_both_connections() {
    let RunningExchange { client, mut upstream, end } = begin(request(Framing::Length(1000)));
    upstream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    assert!(matches!(end.await.unwrap().0, ExchangeOutcome::Done { client: false, upstream: false }));
    drop(client);
}

#[tokio::test]
async fn bad_chunks_of_a_request_stop_it() {
    let RunningExchange { mut client, upstream, end } = begin(request(Framing::Chunked));
    client.write_all(b"3\r\nabcX").await.unwrap();
    assert!(matches!(end.await.unwrap().0, ExchangeOutcome::ClientGone(Some(InvalidMessage::ChunkFrame))));
    drop(upstream);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_exchange() {
    for framing in [Framing::Length(0), Framing::Length(5)] {
        let RunningExchange { client, upstream, end } = begin(request(framing));
        drop(client);
        assert!(matches!(end.await.unwrap().0, ExchangeOutcome::ClientGone(None)));
        drop(upstream);
    }
}

#[tokio::test(start_paused = true)]
async fn silence_has_an_end() {
    let RunningExchange { client, upstream, end } = begin(request(Framing::Length(0)));
    assert!(matches!(end.await.unwrap().0, ExchangeOutcome::Timeout), "no first byte");
    drop((client, upstream));

    let RunningExchange { client, mut upstream, end } = begin(request(Framing::Length(0)));
    upstream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").await.unwrap();
    sleep(Duration::from_secs(299)).await;
    assert!(!end.is_finished(), "a stream may be silent for a while");
    assert!(matches!(end.await.unwrap().0, ExchangeOutcome::Truncated));
    drop(client);
}

#[tokio::test]
async fn another_protocol_begins_with_what_followed_its_head() {
    let upgrade = ExchangeRequest { upgrades: true, ..request(Framing::Length(0)) };
    let (got, end) = answered(upgrade, b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n", 1000).await;
    assert!(matches!(end, ExchangeOutcome::Upgraded), "{end:?} {got:?}");
}
