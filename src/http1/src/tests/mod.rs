//! Tests of refused and accepted messages, however their bytes are split.

mod differential;

use proptest::prelude::*;

use super::{target::has_dot_segment, *};

fn request(text: &str) -> Result<(Framing, bool), InvalidMessage> {
    request_bytes(text.as_bytes())
}

fn request_bytes(bytes: &[u8]) -> Result<(Framing, bool), InvalidMessage> {
    let mut fields = Fields::default();
    let length = head_length(bytes, &mut 0)?.ok_or(InvalidMessage::LineEnd)?;
    RequestHead::read(&bytes[..length], &mut fields).map(|head| (head.framing, head.keeps_alive))
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn bad_requests_are_refused() {
    let cases = [
        ("GET / HTTP/1.1\r\n\r\n", InvalidMessage::Host),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", InvalidMessage::Host),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", InvalidMessage::Host),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Host),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", InvalidMessage::Version),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", InvalidMessage::Version),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", InvalidMessage::StartLine),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::StartLine),
        ("GET /\r\nHost: a\r\n\r\n", InvalidMessage::StartLine),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Method),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Method),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::StartLine),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Connect),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Target),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Target),
        ("GET /#f HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Target),
        ("GET /\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Target),
        ("GET /a/%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::DotSegment),
        ("GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::Target),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", InvalidMessage::StartLine),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", InvalidMessage::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n\r\n", InvalidMessage::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", InvalidMessage::LineEnd),
    ];
    for (text, bad) in cases {
        assert_eq!(request(text), Err(bad), "{text:?}");
    }
    for (fields, bad) in [
        ("A : b\r\n", InvalidMessage::Field),
        (" A: b\r\n", InvalidMessage::Field),
        ("A: b\r\n c\r\n", InvalidMessage::Field),
        ("A: b\r\n\tc\r\n", InvalidMessage::Field),
        (": b\r\n", InvalidMessage::Field),
        ("A\r\n", InvalidMessage::Field),
        ("A(: b\r\n", InvalidMessage::Field),
        ("A: \0\r\n", InvalidMessage::Field),
        ("A: \u{1}\r\n", InvalidMessage::Field),
        ("A: \u{7f}\r\n", InvalidMessage::Field),
        ("Content-Length: +5\r\n", InvalidMessage::Length),
        ("Content-Length: 0x5\r\n", InvalidMessage::Length),
        ("Content-Length: -1\r\n", InvalidMessage::Length),
        ("Content-Length:\r\n", InvalidMessage::Length),
        ("Content-Length: 5, 5\r\n", InvalidMessage::Length),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", InvalidMessage::Length),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", InvalidMessage::Length),
        ("Content-Length: 9999999999999999999\r\n", InvalidMessage::Length),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", InvalidMessage::Coding),
        ("Transfer-Encoding: gzip, chunked\r\n", InvalidMessage::Coding),
        ("Transfer-Encoding: chunked, gzip\r\n", InvalidMessage::Coding),
        ("Transfer-Encoding: identity\r\n", InvalidMessage::Coding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", InvalidMessage::Coding),
        ("Transfer-Encoding: \"chunked\"\r\n", InvalidMessage::Coding),
        ("Connection: host\r\n", InvalidMessage::ConnectionNames),
        ("Connection: close, Content-Length\r\n", InvalidMessage::ConnectionNames),
        ("Connection: X-Recif-User\r\n", InvalidMessage::ConnectionNames),
    ] {
        assert_eq!(request(&get(fields)), Err(bad), "{fields:?}");
    }
    let http10 = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(request(http10), Err(InvalidMessage::Coding));
}

#[test]
fn heads_beyond_the_limits_are_refused() {
    let long = get(&format!("A: {}\r\n", "a".repeat(MAX_HEAD)));
    assert_eq!(request(&long), Err(InvalidMessage::HeadTooLarge));
    assert_eq!(head_length(&long.as_bytes()[..=MAX_HEAD], &mut 0), Err(InvalidMessage::HeadTooLarge));
    assert_eq!(request(&get(&"A: b\r\n".repeat(MAX_FIELDS))), Err(InvalidMessage::TooManyFields));
    assert!(request(&get(&"A: b\r\n".repeat(MAX_FIELDS - 1))).is_ok());
}

#[test]
fn good_requests_say_how_long_they_are_and_whether_the_connection_stays() {
    for (text, expected) in [
        (get(""), (Framing::Length(0), true)),
        (get("Connection: close\r\n"), (Framing::Length(0), false)),
        (get("Content-Length: 5\r\n"), (Framing::Length(5), true)),
        (get("Content-Length: 000005\r\n"), (Framing::Length(5), true)),
        (get("transfer-encoding: Chunked\r\n"), (Framing::Chunked, true)),
        (get("A:\r\nB: \u{e9}\r\nC:\t x \t\r\n"), (Framing::Length(0), true)),
        ("GET / HTTP/1.0\r\n\r\n".into(), (Framing::Length(0), false)),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n".into(), (Framing::Length(0), true)),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".into(), (Framing::Length(0), true)),
        ("GET HTTP://A:1/x HTTP/1.1\r\nHost: a:1\r\n\r\n".into(), (Framing::Length(0), true)),
    ] {
        assert_eq!(request(&text), Ok(expected), "{text:?}");
    }
}

#[test]
fn an_absolute_target_is_its_path() {
    let text = b"GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(
        RequestHead::read(text, &mut Fields::default()).map(|head| head.target.to_vec()),
        Err(InvalidMessage::Target)
    );
    let text = b"GET http://a/b?q HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(RequestHead::read(text, &mut Fields::default()).map(|head| head.target.to_vec()), Ok(b"/b?q".to_vec()));
    let text = b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(RequestHead::read(text, &mut Fields::default()).map(|head| head.target.to_vec()), Ok(b"/".to_vec()));
}

#[test]
fn dot_segments_are_seen_however_they_are_written() {
    for bad in ["/.", "/..", "/a/../b", "/a/./b", "/%2e%2E/b", "/.%2e", "/a%2f..%2fb", "/..;x/b", "/a\\..", "/a%5c.."] {
        assert!(has_dot_segment(bad.as_bytes()), "{bad}");
    }
    for good in ["/", "/a.b", "/...", "/a?/../b", "//", "/%2F", "/a;b", "/%", "/%zz", "/.a/.b"] {
        assert!(!has_dot_segment(good.as_bytes()), "{good}");
    }
}

fn response(text: &str, to_head: bool) -> Result<(u16, Framing, bool), InvalidMessage> {
    let mut fields = Fields::default();
    ResponseHead::read(text.as_bytes(), &mut fields, to_head).map(|head| (head.status, head.framing, head.keeps_alive))
}

#[test]
fn responses_say_how_they_end() {
    let with = |status: &str, fields: &str| format!("HTTP/1.1 {status}\r\n{fields}\r\n");
    for (text, to_head, expected) in [
        (with("200 OK", "Content-Length: 3\r\n"), false, Ok((200, Framing::Length(3), true))),
        (with("200 OK", "Content-Length: 3\r\n"), true, Ok((200, Framing::Length(0), true))),
        (with("200 OK", ""), false, Ok((200, Framing::Close, false))),
        (with("200", "Transfer-Encoding: chunked\r\n"), false, Ok((200, Framing::Chunked, true))),
        (with("204 No Content", "Transfer-Encoding: chunked\r\n"), false, Ok((204, Framing::Length(0), true))),
        (with("304 x", "Content-Length: 3\r\n"), false, Ok((304, Framing::Length(0), true))),
        (with("101 x", "Upgrade: ws\r\n"), false, Ok((101, Framing::Length(0), true))),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n".into(), false, Ok((200, Framing::Length(1), false))),
        (with("600 x", ""), false, Err(InvalidMessage::Status)),
        (with("20 x", ""), false, Err(InvalidMessage::Status)),
        (with("200x", ""), false, Err(InvalidMessage::Status)),
        (with("200 OK", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), false, Err(InvalidMessage::Coding)),
        ("HTTP/2 200 OK\r\n\r\n".into(), false, Err(InvalidMessage::Version)),
        ("ICY 200 OK\r\n\r\n".into(), false, Err(InvalidMessage::Version)),
    ] {
        assert_eq!(response(&text, to_head), expected, "{text:?}");
    }
}

#[test]
fn chunks_are_followed_to_their_end() {
    for (text, taken) in [
        ("0\r\n\r\nNEXT", 5),
        ("5\r\nhello\r\n0\r\n\r\n", 15),
        ("5;a=\"b\"\r\nhello\r\n000\r\nT: x\r\nU:\r\n\r\nNEXT", 33),
        ("A\r\n0123456789\r\n0\r\n\r\n", 20),
    ] {
        let mut body = BodyScanner::new(Framing::Chunked);
        assert_eq!(body.advance(text.as_bytes()), Ok(BodyProgress { consumed: taken, ended: true }), "{text:?}");
    }
}

#[test]
fn bad_chunks_are_broken_off_where_they_are_bad() {
    for (text, at, bad) in [
        ("x\r\n", 0, InvalidMessage::ChunkSize),
        ("\r\n", 0, InvalidMessage::ChunkSize),
        ("+5\r\n", 0, InvalidMessage::ChunkSize),
        ("0x5\r\n", 1, InvalidMessage::ChunkSize),
        ("5 \r\nhello", 1, InvalidMessage::ChunkSize),
        ("5\nhello", 1, InvalidMessage::ChunkSize),
        ("5\r\nhelloX\r\n", 8, InvalidMessage::ChunkFrame),
        ("5\r\nhello\n", 8, InvalidMessage::ChunkFrame),
        ("5\rhello", 2, InvalidMessage::ChunkFrame),
        ("1000000000000000\r\n", 15, InvalidMessage::ChunkSize),
        ("0\r\nT x\r\n\r\n", 4, InvalidMessage::ChunkFrame),
        ("0\r\n T: x\r\n\r\n", 3, InvalidMessage::ChunkFrame),
        ("0\r\nT: x\n\r\n", 7, InvalidMessage::ChunkFrame),
        ("0\r\n\rx", 4, InvalidMessage::ChunkFrame),
    ] {
        assert_eq!(BodyScanner::new(Framing::Chunked).advance(text.as_bytes()), Err((at, bad)), "{text:?}");
    }
    let extension = format!("5;{}\r\n", "a".repeat(2000));
    assert_eq!(
        BodyScanner::new(Framing::Chunked).advance(extension.as_bytes()),
        Err((1026, InvalidMessage::ChunkLimits))
    );
    let trailers = format!("0\r\n{}\r\n", "T: x\r\n".repeat(4000));
    assert!(matches!(
        BodyScanner::new(Framing::Chunked).advance(trailers.as_bytes()),
        Err((_, InvalidMessage::ChunkLimits))
    ));
}

#[test]
fn what_belongs_to_one_connection_is_left_out() {
    let text = b"GET /a?b HTTP/1.1\r\nHost: h\r\nConnection: close, X-Own\r\nX-Own: 1\r\nKeep-Alive: 5\r\nA: 1\r\nX-Recif-User: \
                 evil\r\nTE: trailers\r\nB: 2\r\n\r\n";
    let mut fields = Fields::default();
    let head = RequestHead::read(text, &mut fields).unwrap();
    let mut out = Vec::new();
    HeadWriter::request(&head, b"/b", &mut out)
        .copy(head.bytes, head.fields, |name| name.eq_ignore_ascii_case(b"x-recif-user"))
        .field("X-Forwarded-For", "::1")
        .end();
    let expected = "GET /b HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nX-Forwarded-For: ::1\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);

    let text = b"HTTP/1.0 200 Fine\r\nA: 1\r\n\r\n";
    let mut fields = Fields::default();
    let head = ResponseHead::read(text, &mut fields, false).unwrap();
    let mut out = Vec::new();
    HeadWriter::response(&head, Version::Http11, &mut out).copy(head.bytes, head.fields, |_| false).end();
    assert_eq!(out, b"HTTP/1.1 200 Fine\r\nA: 1\r\n\r\n");
}

/// Generates bytes that often resemble HTTP.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let parts = [
        "GET ",
        "POST ",
        "/",
        "/a?b",
        " HTTP/1.1",
        "\r\n",
        "\r",
        "\n",
        "Host: a",
        "Content-Length: ",
        "5",
        "0",
        "a",
        ";x=y",
        "Transfer-Encoding: chunked",
        ": ",
        " ",
        "\t",
        "\0",
        "hello",
        "Connection: close",
        ",",
        "é",
    ];
    let part = prop_oneof![4 => prop::sample::select(parts.to_vec()).prop_map(|part| part.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4)];
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn a_head_that_comes_byte_by_byte_is_found_at_the_same_place(bytes in messages()) {
        let whole = head_length(&bytes, &mut 0);
        let mut scanned = 0;
        let piecewise = (0..=bytes.len()).find_map(|end| head_length(&bytes[..end], &mut scanned).transpose());
        prop_assert_eq!(whole.transpose(), piecewise);
    }

    #[test]
    fn a_body_is_the_same_however_it_is_cut(bytes in messages(), cut in 0_usize..64) {
        for framing in [Framing::Chunked, Framing::Length(7), Framing::Close] {
            let mut whole = BodyScanner::new(framing);
            let expected = whole.advance(&bytes);
            let cut = cut.min(bytes.len());
            let mut body = BodyScanner::new(framing);
            let got = match body.advance(&bytes[..cut]) {
                Ok(first) if !first.ended => match body.advance(&bytes[cut..]) {
                    Ok(rest) => Ok(BodyProgress { consumed: cut + rest.consumed, ended: rest.ended }),
                    Err((at, bad)) => Err((cut + at, bad)),
                },
                first => first,
            };
            prop_assert_eq!(&got, &expected);
            if got.is_ok() {
                prop_assert_eq!(body, whole);
            }
        }
    }

    /// Checks that httparse reads an accepted request in the same way.
    #[test]
    fn a_request_that_passes_means_the_same_to_httparse(bytes in messages()) {
        let start = b"GET /a HTTP/1.1\r\nHost: a\r\n".iter().chain(&bytes).chain(b"\r\n\r\n").copied().collect::<Vec<_>>();
        for bytes in [start, bytes] {
            let Ok(Some(length)) = head_length(&bytes, &mut 0) else { continue };
            let mut fields = Fields::default();
            let Ok(ours) = RequestHead::read(&bytes[..length], &mut fields) else { continue };
            let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
            let mut theirs = httparse::Request::new(&mut headers);
            prop_assert_eq!(theirs.parse(&bytes[..length]), Ok(httparse::Status::Complete(length)));
            prop_assert_eq!(theirs.method.unwrap().as_bytes(), ours.method);
            prop_assert_eq!(theirs.headers.len(), ours.fields.lines().len());
            for (line, header) in ours.fields.lines().iter().zip(theirs.headers.iter()) {
                prop_assert_eq!(line.name(ours.bytes), header.name.as_bytes());
                prop_assert_eq!(line.value(ours.bytes), header.value);
            }
        }
    }
}
