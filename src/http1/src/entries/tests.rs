//! Runs the fuzzed checks with nearly valid messages, and with messages split at every byte.

use proptest::prelude::*;
use testing::bad_requests;

use crate::entries;

/// Header lines of generated heads, valid and invalid.
const LINES: &[&str] = &[
    "Host: a\r\n",
    "Host: a\r\n",
    "Content-Length: 3\r\n",
    "Content-Length: 03\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close, x-a\r\n",
    "Connection: keep-alive\r\n",
    "Connection: Upgrade\r\nUpgrade: x\r\n",
    "Connection: Upgrade\r\nUpgrade: h2c, WebSocket\r\n",
    "Trailer: T\r\n",
    "X_Recif_User: a\r\n",
    "X-A:\t1 \r\n",
    "X-B:\r\n",
    "X-C: \u{e9}\r\n",
    "X-D : 1\r\n",
    "X-E: 1\n",
    "X-F: a\rb\r\n",
    " folded\r\n",
    "\r\n",
];
const BODIES: &[&str] = &[
    "",
    "abc",
    "abcdef",
    "3\r\nabc\r\n0\r\n\r\n",
    "3;x=y\r\nabc\r\n00\r\nT: v\r\n\r\nrest",
    "3\r\nabX",
    "0\r\n\r\n",
    "1\r\na\r\n",
];

fn message(first: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec(prop::sample::select(LINES), 0..5);
    let noise = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (prop::sample::select(first), lines, prop::sample::select(BODIES), noise).prop_map(|(first, lines, body, noise)| {
        let mut bytes = [first, &lines.concat(), "\r\n", body].concat().into_bytes();
        if let Some((at, byte)) = noise {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

fn requests() -> impl Strategy<Value = Vec<u8>> {
    message(&[
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "POST /a?b HTTP/1.1\r\nHost: a\r\n",
        "HEAD http://a/x HTTP/1.1\r\nHost: a\r\n",
        "GET http://a/x HTTP/1.0\r\n",
        "GET / HTTP/1.0\r\n",
        "OPTIONS * HTTP/1.1\r\n",
    ])
}

fn answers() -> impl Strategy<Value = Vec<u8>> {
    message(&[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 204\r\n",
        "HTTP/1.0 404 Not Found\r\n",
        "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n",
        "HTTP/1.1 101 Switching\r\n",
        "HTTP/1.1 999 x\r\n",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn heads_that_pass_mean_the_same_to_others(request in requests(), answer in answers()) {
        entries::request_head(&request);
        entries::response_head(&answer);
    }

    #[test]
    fn bodies_are_the_same_however_they_are_cut(kind in any::<u8>(), first in requests(), body in prop::sample::select(BODIES)) {
        entries::body(&[&[kind], body.as_bytes(), body.as_bytes(), &first].concat());
        entries::body(&[&[kind], first.as_slice()].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn exchanges_are_the_same_however_they_are_cut(request in requests(), answer in answers()) {
        let length = (request.len() as u16).to_be_bytes();
        entries::exchange(&[&length, request.as_slice(), &answer].concat());
    }
}

#[test]
fn good_messages_come_through_the_same_in_pieces_of_every_size() {
    let requests = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: v\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ];
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nT: v\r\n\r\n",
        "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nBad : x\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX0\r\n\r\n",
    ];
    for request in requests {
        for answer in answers {
            let whole = entries::relayed(request.as_bytes(), answer.as_bytes(), usize::MAX);
            assert!(whole.is_some());
            for piece in 1..=request.len().max(answer.len()) {
                let cut = entries::relayed(request.as_bytes(), answer.as_bytes(), piece);
                assert_eq!(cut, whole, "{request:?} {answer:?} in pieces of {piece}");
            }
        }
    }
}

#[test]
fn bad_requests_are_refused_the_same_cut_at_every_byte() {
    use crate::{Fields, InvalidMessage, RequestHead, head_length};
    for bad in bad_requests::bad_heads("/x") {
        let verdict = |cut: usize| -> Option<InvalidMessage> {
            let mut scanned = 0;
            for end in [cut, bad.bytes.len()] {
                match head_length(&bad.bytes[..end], &mut scanned) {
                    Err(bad) => return Some(bad),
                    Ok(Some(length)) => return RequestHead::read(&bad.bytes[..length], &mut Fields::default()).err(),
                    Ok(None) => {}
                }
            }
            None
        };
        let whole = verdict(bad.bytes.len());
        assert_eq!(whole.map(InvalidMessage::status), Some(bad.status), "{}", bad.name);
        for cut in (0..bad.bytes.len()).step_by(1 + bad.bytes.len() / 1000) {
            assert_eq!(verdict(cut), whole, "{} cut at {cut}", bad.name);
        }
    }
}
