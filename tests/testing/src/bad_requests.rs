//! Provides malformed requests that no proxy may forward, for tests of everything that listens: each must be refused with
//! its status code and a closed connection, and no byte of it may reach the upstream.

/// Number of bytes that exceeds the limit of all our proxies for a head (64 KiB).
const TOO_LONG: usize = 64 * 1024;

/// Malformed request.
pub struct BadRequest {
    /// Name of its fault.
    pub name: &'static str,
    /// Bytes.
    pub bytes: Vec<u8>,
    /// Expected status code.
    pub status: u16,
}

/// Request that a proxy forwards without a part of it.
pub struct SanitizedRequest {
    /// Name of the part that is removed.
    pub name: &'static str,
    /// Bytes.
    pub bytes: Vec<u8>,
    /// Texts, in lower case, that the forwarded request must not contain.
    pub absent: &'static [&'static str],
    /// Forwarded body, with its framing.
    pub body: &'static str,
}

/// Returns requests whose head or body an upstream server could interpret differently from the proxy.
pub fn sanitized_requests(path: &str) -> Vec<SanitizedRequest> {
    let get = |name, absent, fields: &str| {
        let bytes = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
        SanitizedRequest { name, bytes, absent, body: "" }
    };
    let post = |name, absent, fields: &str, body: &str, passed| {
        let coding = "Transfer-Encoding: chunked";
        let bytes = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{fields}{coding}\r\n\r\n{body}").into_bytes();
        SanitizedRequest { name, bytes, absent, body: passed }
    };
    let (upgrade, h2c) = (&["upgrade", "settings", "h2c"][..], "AAEAABAAAAIAAAAB");
    vec![
        get("an upgrade to h2c", upgrade, &format!("Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: {h2c}\r\n")),
        get(
            "an upgrade to h2c as it should be",
            upgrade,
            &format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: {h2c}\r\n"),
        ),
        get("settings alone", upgrade, &format!("http2-settings: {h2c}\r\n")),
        get("an upgrade to TLS", &["upgrade", "tls"], "Connection: upgrade\r\nUpgrade: TLS/1.0\r\n"),
        get(
            "a WebSocket beside h2c",
            &["h2c", "settings"],
            &format!("Connection: Upgrade\r\nUpgrade: h2c, websocket\r\nHTTP2-Settings: {h2c}\r\n"),
        ),
        get(
            "names that some servers read as others",
            &["admin", "user", "forwarded_", "_for", "_length", "_encoding"],
            "X_Recif_User: admin\r\nX-Recif_User: admin\r\nX_Forwarded_For: admin\r\nContent_Length: 5\r\n\
             Transfer_Encoding: chunked\r\nX_Forwarded-Proto: admin\r\n",
        ),
        post(
            "trailers",
            &["admin", "trailer:", "x-pad"],
            "Trailer: X-Recif-User\r\n",
            "2\r\n{}\r\n0\r\nX-Recif-User: admin\r\nX-Pad: 1\r\n\r\n",
            "2\r\n{}\r\n0\r\n\r\n",
        ),
        post("trailers alone", &["admin"], "", "0\r\nAuthorization: admin\r\n\r\n", "0\r\n\r\n"),
        post("nothing of what has none", &["trailer:"], "", "3;a=b\r\nabc\r\n00\r\n\r\n", "3;a=b\r\nabc\r\n00\r\n\r\n"),
    ]
}

/// Returns heads that must be refused before anything else happens. `path` is one that would be served otherwise.
pub fn bad_heads(path: &str) -> Vec<BadRequest> {
    let refused = |status, name, text: String| BadRequest { name, bytes: text.into_bytes(), status };
    let get = |name, fields: &str| refused(400, name, format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let post =
        |name, fields: &str| refused(400, name, format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n0\r\n\r\n"));
    let line = |status, name, line: String| refused(status, name, format!("{line}\r\nHost: a\r\n\r\n"));
    let mut all = vec![
        post("length and coding", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        post("coding and length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        post("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n"),
        post("the same length twice", "Content-Length: 5\r\nContent-Length: 5\r\n"),
        post("a list of lengths", "Content-Length: 5, 5\r\n"),
        post("chunked not last", "Transfer-Encoding: chunked, gzip\r\n"),
        post("chunked not alone", "Transfer-Encoding: gzip, chunked\r\n"),
        post("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        post("another coding", "Transfer-Encoding: identity\r\n"),
        post("a coding in disguise", "Transfer-Encoding: x\u{b}chunked\r\n"),
        refused(
            400,
            "a coding in HTTP/1.0",
            format!("POST {path} HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        post("a sign before the length", "Content-Length: +5\r\n"),
        post("a hexadecimal length", "Content-Length: 0x5\r\n"),
        post("a negative length", "Content-Length: -1\r\n"),
        post("an empty length", "Content-Length:\r\n"),
        post("a length beyond all numbers", "Content-Length: 99999999999999999999\r\n"),
        get("a folded field", "A: b\r\n c\r\n"),
        get("a field folded with a tab", "A: b\r\n\tc\r\n"),
        get("space before the first field", " A: b\r\n"),
        get("a bare CR", "A: b\rc\r\n"),
        get("a bare LF", "A: b\nB: c\r\n"),
        get("a NUL", "A: b\0c\r\n"),
        get("a control character", "A: b\u{1}c\r\n"),
        get("space before the colon", "A : b\r\n"),
        get("no colon", "A\r\n"),
        get("no name", ": b\r\n"),
        get("a name that is no token", "A(b): c\r\n"),
        get("two hosts", "Host: b\r\n"),
        get("the same host twice", "Host: a\r\n"),
        refused(400, "no host", format!("GET {path} HTTP/1.1\r\n\r\n")),
        refused(400, "a host that is none", format!("GET {path} HTTP/1.1\r\nHost: a/b\r\n\r\n")),
        line(400, "an absolute target with another host", format!("GET http://b{path} HTTP/1.1")),
        line(400, "an absolute target of another scheme", format!("GET ftp://a{path} HTTP/1.1")),
        line(405, "CONNECT", "CONNECT a:80 HTTP/1.1".to_owned()),
        line(505, "HTTP/1.2", format!("GET {path} HTTP/1.2")),
        line(505, "HTTP/2.0", format!("GET {path} HTTP/2.0")),
        line(400, "no version", format!("GET {path}")),
        line(400, "a lower-case protocol", format!("GET {path} http/1.1")),
        line(400, "a lower-case method", format!("get {path} HTTP/1.1")),
        line(400, "a method that is no token", format!("G@T {path} HTTP/1.1")),
        line(400, "two spaces", format!("GET  {path} HTTP/1.1")),
        line(400, "a tab for a space", format!("GET\t{path} HTTP/1.1")),
        line(400, "a fragment", format!("GET {path}#a HTTP/1.1")),
        line(400, "a NUL in the target", format!("GET {path}\0 HTTP/1.1")),
        line(400, "a target that is no path", "GET a HTTP/1.1".to_owned()),
        refused(400, "an empty line first", format!("\r\nGET {path} HTTP/1.1\r\nHost: a\r\n\r\n")),
        refused(400, "a bare LF after the first line", format!("GET {path} HTTP/1.1\nHost: a\r\n\r\n")),
        refused(
            431,
            "a field that is too long",
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(TOO_LONG)),
        ),
        refused(
            431,
            "a path that is too long",
            format!("GET {path}{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(TOO_LONG)),
        ),
        refused(431, "too many fields", format!("GET {path} HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(200))),
    ];
    for dots in
        ["/.", "/..", "/../a", "/./a", "/%2e%2E/a", "/.%2e/a", "/%2e", "/a%2f..%2fb", "/..%5ca", "/..;a/b", "/..\\a"]
    {
        all.push(line(400, "a dot segment", format!("GET {path}{dots} HTTP/1.1")));
    }
    for protected in [
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Authorization",
        "X-Forwarded-For",
        "X-Recif-User",
        "x_recif_user",
    ] {
        all.push(get("Connection names a protected field", &format!("Connection: close, {protected}\r\n")));
    }
    all
}

/// Returns bodies with invalid framing: the head may be forwarded before, but the message must never be completed.
pub fn bad_bodies(path: &str) -> Vec<BadRequest> {
    [
        "x\r\n",
        "\r\n",
        "+3\r\nabc\r\n",
        "0x3\r\nabc\r\n",
        "3 \r\nabc\r\n",
        " 3\r\nabc\r\n",
        "3\nabc\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n",
        "fffffffffffffffff\r\n",
        "3;a\nb\r\nabc\r\n",
        "0\r\nA : b\r\n\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\n\rx",
    ]
    .into_iter()
    .map(|chunk| BadRequest {
        name: chunk,
        bytes: format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n{chunk}")
            .into_bytes(),
        status: 400,
    })
    .collect()
}
