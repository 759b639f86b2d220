use std::net::SocketAddr;

use axum::{Router, routing::any};
use bytes::Bytes;
use daemon::tls::{HTTP1, Tls};
use futures::{SinkExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use testing::certificates;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{accept_async, client_async, tungstenite::Message};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{
    super::{fleet::testing::TestFleet, serve, testing::app},
    *,
};

/// Serves a whole control plane in front of a gateway at this address.
async fn relay(gateway: SocketAddr) -> (SocketAddr, CancellationToken) {
    let app = app(&TestFleet::new().fleet, &format!("http://{gateway}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    tokio::spawn(serve::run(listener, None, super::super::api::router(app), stop.clone()));
    (address, stop)
}

/// Starts a gateway that accepts one connection and passes it to `f`.
async fn gateway<F: Future<Output = ()> + Send + 'static>(
    f: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        f(stream).await;
    });
    address
}

async fn head(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_request_goes_on_as_it_was_sent() {
    let echo = any(|request: Request| async move {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mut fields: Vec<_> =
            parts.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        fields.sort();
        (
            StatusCode::IM_A_TEAPOT,
            [
                ("x-answer", "yes"),
                ("content-security-policy", "default-src *"),
                ("service-worker-allowed", "/"),
                ("set-cookie", "a=b"),
                ("clear-site-data", "*"),
                ("refresh", "0; url=/gateway/v1/agents/a/b/chat"),
                ("link", "</gateway/x>; rel=preload"),
            ],
            format!("{} {}\n{}\n{body:?}", parts.method, parts.uri, fields.join("\n")),
        )
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(echo)).await.unwrap() });
    let (address, stop) = relay(gateway).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = "POST /gateway/v1/agents/ns/a%2Fb/chat?q=%20x HTTP/1.1\r\nHost: ui.example\r\nAuthorization: Bearer t\r\n\
        X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Host: liar.example\r\nX-Forwarded-Proto: https\r\n\
        Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\nhi";
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    let (fields, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(fields.starts_with("HTTP/1.1 418 ") && fields.contains("x-answer: yes"), "{fields}");
    for expected in ["content-security-policy: sandbox\r\n", "x-content-type-options: nosniff"] {
        assert!(fields.contains(expected), "{fields}");
    }
    for lost in ["default-src", "service-worker-allowed", "set-cookie", "clear-site-data", "refresh", "link"] {
        assert!(!fields.contains(lost), "{fields}");
    }
    let expected = format!(
        "POST /v1/agents/ns/a%2Fb/chat?q=%20x\nauthorization: Bearer t\ncontent-length: 2\nhost: {gateway}\n\
         x-forwarded-for: 10.0.0.1, 127.0.0.1\nx-forwarded-host: ui.example\nx-forwarded-prefix: /gateway\nx-forwarded-proto: http\nb\"hi\""
    );
    assert_eq!(body, expected);
    stop.cancel();
}

#[tokio::test]
async fn pieces_of_an_answer_come_as_they_are_sent() {
    let (go, may) = tokio::sync::oneshot::channel::<()>();
    let gateway = gateway(|mut stream| async move {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await.unwrap();
        may.await.unwrap();
        stream.write_all(b"4\r\nlast\r\n0\r\n\r\n").await.unwrap();
    })
    .await;
    let app = app(&TestFleet::new().fleet, &format!("http://{gateway}"));
    let request = Request::get("/gateway/x").body(Body::empty()).unwrap();
    let mut pieces = app.relay.proxy_request(request).await.into_body().into_data_stream();
    assert_eq!(pieces.next().await.unwrap().unwrap(), Bytes::from_static(b"first"));
    go.send(()).unwrap();
    assert_eq!(pieces.next().await.unwrap().unwrap(), Bytes::from_static(b"last"));
}

#[tokio::test]
async fn a_caller_that_disconnects_ends_its_request() {
    let (seen, ended) = tokio::sync::oneshot::channel();
    let gateway = gateway(|mut stream| async move {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        seen.send(()).unwrap();
    })
    .await;
    let (address, stop) = relay(gateway).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET /gateway/x HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    head(&mut client).await;
    drop(client);
    tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap().unwrap();
    stop.cancel();
}

#[tokio::test]
async fn a_web_socket_passes() {
    let gateway = gateway(|stream| async move {
        let mut socket = accept_async(stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                socket.send(message).await.unwrap();
            }
        }
    })
    .await;
    let (address, stop) = relay(gateway).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut socket, _) = client_async("ws://h/gateway/v1/ws", stream).await.unwrap();
    for text in ["one", "two"] {
        socket.send(Message::text(text)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
    }
    socket.close(None).await.unwrap();
    stop.cancel();
}

#[tokio::test]
async fn without_sign_in_no_page_of_others_reaches_the_gateway() {
    let router = super::super::api::router(app(&TestFleet::new().fleet, "http://127.0.0.1:1"));
    for (path, field, value, expected) in [
        ("/gateway/x", "origin", "http://localhost:8780", 502),
        ("/gateway", "sec-fetch-site", "same-origin", 502),
        ("/gateway/", "origin", "http://evil.example", 403),
        ("/gateway", "origin", "http://localhost:3000", 403),
        ("/gateway/x", "origin", "null", 403),
        ("/gateway/x", "sec-fetch-site", "same-site", 403),
        ("/gateway/x", "sec-fetch-site", "cross-site", 403),
    ] {
        let request = Request::post(path).header("host", "localhost:8780").header(field, value);
        let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), expected, "{path} {field}: {value}");
    }
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_said_so() {
    for (url, status) in [("", 404), ("http://127.0.0.1:1", 502)] {
        let app = app(&TestFleet::new().fleet, url);
        let request = Request::get("/gateway/x").body(Body::empty()).unwrap();
        assert_eq!(app.relay.proxy_request(request).await.status(), status, "{url}");
    }
}

#[test]
fn only_an_origin_is_a_gateway() {
    for good in ["", "http://gateway", "http://recif-gateway.recif-system:80/", "http://[::1]:8080"] {
        assert!(Relay::new(good, None).is_ok(), "{good}");
    }
    for bad in ["gateway", "ftp://h", "http://", "http://h/path", "https://h/?q", "h:80", "/x"] {
        assert!(matches!(Relay::new(bad, None), Err(GatewayFlagError::Url(_))), "{bad}");
    }
}

#[test]
fn only_pages_of_this_origin_ask_through_here_and_the_gateway_hears_of_no_page() {
    let fields = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    };
    for (pairs, fits) in [
        (&[("host", "ui.example:8780")][..], true),
        (&[("host", "ui.example:8780"), ("origin", "http://UI.example:8780")], true),
        (&[("host", "10.0.0.1"), ("x-forwarded-host", "ui.example"), ("origin", "https://ui.example")], true),
        (&[("host", "ui.example:8780"), ("origin", "http://ui.example")], false),
        (&[("host", "ui.example"), ("origin", "https://evil.example")], false),
        (&[("host", "ui.example"), ("origin", "null")], false),
    ] {
        assert_eq!(is_same_origin(&fields(pairs)), fits, "{pairs:?}");
    }
    let mut sent =
        fields(&[("host", "ui"), ("origin", "http://ui"), ("cookie", "a=b"), ("sec-fetch-site", "same-origin")]);
    set_forwarded_headers(&mut sent, None, None);
    let names: Vec<_> = sent.keys().map(HeaderName::as_str).filter(|name| !name.starts_with("x-forwarded")).collect();
    assert_eq!(names, [""; 0]);
}

#[tokio::test]
async fn a_workload_redirects_no_client_to_another_one() {
    let elsewhere = any(|uri: Uri| async move {
        let location = percent_encoding::percent_decode_str(uri.query().unwrap()).decode_utf8().unwrap().into_owned();
        (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)])
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(elsewhere)).await.unwrap() });
    let app = app(&TestFleet::new().fleet, &format!("http://{gateway}"));
    for (location, status) in [
        ("/gateway/v1/mcp/prod/files/mcp", 502),
        ("../files/mcp", 502),
        ("//ui.example:8780/gateway/x", 502),
        ("http://UI.example:8780/gateway/x", 502),
        ("https://outside.example/gateway/x", 502),
        ("https://outside.example:443/", 502),
        ("%5C%5Cui.example:8780/gateway/x", 502),
        ("ht%09tp://ui.example:8780/gateway/x", 502),
        ("http://[", 502),
        ("https:/gateway/v1/mcp/prod/files/mcp", 502),
        ("http:/gateway/v1/mcp/prod/files/mcp", 502),
        ("https://docs.example/", 307),
        ("http://ui.example:3000/", 307),
    ] {
        let request = Request::post(format!("/gateway/x?{location}")).header("host", "ui.example:8780");
        let request = request.header("x-forwarded-host", "outside.example").body(Body::empty()).unwrap();
        let answer = app.relay.proxy_request(request).await;
        assert_eq!(answer.status(), status, "{location}");
        assert_eq!(answer.headers().contains_key(header::LOCATION), status == 307, "{location}");
    }
}

#[tokio::test]
async fn a_gateway_and_this_process_speak_tls() {
    let tls = Tls::load(&certificates::file("one.crt"), &certificates::file("one.key"), &[HTTP1]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, stop) = (listener.local_addr().unwrap().port(), CancellationToken::new());
    let reported = any(|request: Request| async move { format!("{:?}", request.extensions().get::<serve::Peer>()) });
    tokio::spawn(serve::run(listener, Some(tls), Router::new().fallback(reported), stop.clone()));
    let url = format!("https://localhost:{port}");
    let ask = async |authority: &str| {
        let relay = Relay::new(&url, Some(&certificates::file(authority))).unwrap();
        relay.proxy_request(Request::get("/gateway/x").body(Body::empty()).unwrap()).await
    };
    let answer = ask("one.crt").await;
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("https"), "{body:?}");
    assert_eq!(ask("two.crt").await.status(), 502, "its certificate is signed by another authority");
    for (authority, sentence) in [
        (None, "--gateway-ca"),
        (Some(certificates::file("none.crt")), "none.crt"),
        (Some(certificates::file("one.key")), "no certificate"),
    ] {
        let error = Relay::new(&url, authority.as_deref()).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    stop.cancel();
}
