//! Tests of forwarding in both directions.

use super::*;

#[tokio::test]
async fn requests_go_through_on_connections_that_stay() {
    let mut proxy = TestProxy::start(&[]).await;
    let (mut client, mut workload, seen) =
        proxy.request(b"GET /a%2Fb?c;d HTTP/1.1\r\nHost: h:1\r\nX-Forwarded-For: 192.0.2.1\r\nTE: x\r\n\r\n").await;
    assert_eq!(
        seen,
        "GET /a%2Fb?c;d HTTP/1.1\r\nHost: h:1\r\nX-Forwarded-For: 192.0.2.1, 127.0.0.1\r\nX-Forwarded-Host: h:1\r\n\
         X-Forwarded-Proto: http\r\nTE: trailers\r\nConnection: TE\r\n\r\n"
    );
    workload.write_all(OK).await.unwrap();
    assert_eq!(read_head(&mut client).await, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-recif-load: 1/0\r\n\r\n");
    assert_eq!(read_exactly(&mut client, 2).await, "ok");

    client.write_all(GET).await.unwrap();
    read_head(&mut workload).await;
    workload.write_all(OK).await.unwrap();
    read_head(&mut client).await;
    assert!(proxy.accepted.try_recv().is_err(), "the workload's connection was used again");
}

#[tokio::test]
async fn an_event_arrives_before_the_next_is_there() {
    let mut proxy = TestProxy::start(&[]).await;
    let (mut client, mut workload, _) = proxy.request(GET).await;
    workload.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    read_head(&mut client).await;
    for event in ["5\r\none\n\n\r\n", "5\r\ntwo\n\n\r\n"] {
        workload.write_all(event.as_bytes()).await.unwrap();
        assert_eq!(read_exactly(&mut client, event.len()).await, event);
    }
    assert_eq!(proxy.shared.load.in_flight(), 1, "a stream holds its slot");
    workload.write_all(b"0\r\n\r\n").await.unwrap();
    read_exactly(&mut client, 5).await;
    proxy.until_in_flight(0).await;
}

#[tokio::test]
async fn trailers_reach_a_client_that_takes_them_and_no_other() {
    let mut proxy = TestProxy::start(&[]).await;
    let trailer = "x-recif-usage: in=1, out=2\r\n";
    for (fields, passed) in
        [("", ""), ("TE: gzip\r\n", ""), ("TE: gzip;q=0.5, trailers\r\nConnection: TE\r\n", trailer)]
    {
        let request = format!("GET /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let (mut client, mut workload, seen) = proxy.request(request.as_bytes()).await;
        assert!(seen.ends_with("\r\nTE: trailers\r\nConnection: TE\r\n\r\n"), "{seen}");
        let answer = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-recif-usage\r\n\r\n2\r\nok\r\n0\r\n{trailer}\r\n"
        );
        workload.write_all(answer.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await;
        assert_eq!(head.contains("\r\nTrailer: x-recif-usage\r\n"), !passed.is_empty(), "{head}");
        let body = format!("2\r\nok\r\n0\r\n{passed}\r\n");
        assert_eq!(read_exactly(&mut client, body.len()).await, body);
        proxy.until_in_flight(0).await;
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_seen_as_such() {
    let mut proxy = TestProxy::start(&[]).await;
    let (mut client, mut workload, _) = proxy.request(GET).await;
    workload.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").await.unwrap();
    read_head(&mut client).await;
    assert_eq!(read_exactly(&mut client, 3).await, "abc");
    drop(workload);
    let mut rest = Vec::new();
    let end = timeout(SOON, client.read_to_end(&mut rest)).await.unwrap();
    assert!(end.is_err() && rest.is_empty(), "a reset, not an end: {end:?}");
}

#[tokio::test]
async fn a_connection_that_went_stale_costs_no_request() {
    let mut proxy = TestProxy::start(&[]).await;
    let (mut client, mut workload, _) = proxy.request(GET).await;
    workload.write_all(OK).await.unwrap();
    read_head(&mut client).await;
    read_exactly(&mut client, 2).await;
    client.write_all(GET).await.unwrap();
    read_head(&mut workload).await;
    // The workload takes the request and closes: only a safe one may be sent again.
    drop(workload);
    let (mut workload, again) = proxy.workload().await;
    assert!(again.starts_with("GET /x "), "{again}");
    workload.write_all(OK).await.unwrap();
    read_head(&mut client).await;
    read_exactly(&mut client, 2).await;
    client.write_all(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    read_head(&mut workload).await;
    drop(workload);
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn another_protocol_is_carried_both_ways() {
    let mut proxy = TestProxy::start(&[]).await;
    let mut client = proxy.client().await;
    let request = b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\nearly";
    client.write_all(request).await.unwrap();
    let (mut workload, seen) = proxy.workload().await;
    assert!(seen.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"), "{seen}");
    workload
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        .await
        .unwrap();
    let answer = read_head(&mut client).await;
    assert!(answer.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"), "{answer}");
    assert_eq!(read_exactly(&mut client, 2).await, "hi");
    assert_eq!(read_exactly(&mut workload, 5).await, "early");
    client.write_all(b"ping").await.unwrap();
    assert_eq!(read_exactly(&mut workload, 4).await, "ping");
    assert_eq!(proxy.shared.load.in_flight(), 1);
    drop(client);
    drop(workload);
    proxy.until_in_flight(0).await;
}

#[tokio::test]
async fn an_end_that_comes_with_the_last_data_is_seen() {
    let mut proxy = TestProxy::start(&[]).await;
    for size in [0, 1, 65_536, 1_000_000] {
        let (mut client, mut workload, _) = proxy.request(GET).await;
        let answer = [b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), &vec![b'x'; size]].concat();
        tokio::spawn(async move {
            workload.write_all(&answer).await.unwrap();
            workload.shutdown().await.unwrap();
        });
        read_head(&mut client).await;
        let mut body = Vec::new();
        timeout(SOON, client.read_to_end(&mut body)).await.unwrap().unwrap();
        assert_eq!(body.len(), size);
        proxy.until_in_flight(0).await;
    }
}

#[tokio::test]
async fn what_the_workload_says_unasked_is_never_an_answer() {
    let mut proxy = TestProxy::start(&[]).await;
    let mut client = proxy.client().await;
    for unasked in [&b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"[..], b"x", b""] {
        client.write_all(GET).await.unwrap();
        let (mut workload, _) = proxy.workload().await;
        workload.write_all(OK).await.unwrap();
        read_head(&mut client).await;
        assert_eq!(read_exactly(&mut client, 2).await, "ok");
        // Unrequested bytes after the response, on an idle connection; or its end.
        workload.write_all(unasked).await.unwrap();
        workload.shutdown().await.unwrap();
        proxy.answer(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        client.write_all(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let (mut workload, seen) = proxy.workload().await;
        assert!(seen.starts_with("POST "), "on a connection of its own: {seen}");
        workload.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nyes").await.unwrap();
        read_head(&mut client).await;
        assert_eq!(read_exactly(&mut client, 3).await, "yes");
    }
}

#[tokio::test]
async fn a_stream_without_end_lets_others_through() {
    let mut proxy = TestProxy::start(&[]).await;
    let (mut greedy, mut workload, _) = proxy.request(GET).await;
    let endless = tokio::spawn(async move {
        let _ = workload.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while workload.write_all(&[b'x'; 65_536]).await.is_ok() {}
    });
    let reader = tokio::spawn(async move { tokio::io::copy(&mut greedy, &mut tokio::io::sink()).await });
    for _ in 0..20 {
        let (mut client, mut workload, _) = proxy.request(GET).await;
        workload.write_all(OK).await.unwrap();
        read_head(&mut client).await;
    }
    assert!(!endless.is_finished());
    reader.abort();
    timeout(SOON, endless).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_large_upload_may_take_longer_than_the_wait_for_an_answer() {
    let mut proxy = TestProxy::start(&[("RECIF_TIMEOUT", "400ms")]).await;
    let (mut client, mut workload, _) =
        proxy.request(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n").await;
    for _ in 0..8 {
        sleep(Duration::from_millis(100)).await;
        client.write_all(b"x").await.unwrap();
        read_exactly(&mut workload, 1).await;
    }
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 504 "), "and the wait begins then");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_before_the_workload_does() {
    let mut proxy = TestProxy::start(&[]).await;
    let (mut client, mut workload, _) = proxy.request(GET).await;
    workload.write_all(OK).await.unwrap();
    read_head(&mut client).await;
    let begun = tokio::time::Instant::now();
    let mut rest = Vec::new();
    workload.read_to_end(&mut rest).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "common servers close after five seconds");
}

#[tokio::test]
async fn an_open_stream_holds_little() {
    let proxy = TestProxy::start(&[]).await;
    let serving = connection::serve(proxy.client().await, [127, 0, 0, 1].into(), &proxy.shared);
    // With the runtime's part it is one allocation of 1536 bytes.
    assert!(size_of_val(&serving) <= 1400, "{}", size_of_val(&serving));
}

#[tokio::test]
async fn a_client_of_http_1_0_is_told_of_no_chunks() {
    let mut proxy = TestProxy::start(&[]).await;
    for request in ["GET /x HTTP/1.0\r\n\r\n", "HEAD /x HTTP/1.0\r\n\r\n"] {
        let (mut client, mut workload, _) = proxy.request(request.as_bytes()).await;
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\nA: b\r\n\r\n";
        workload.write_all(answer).await.unwrap();
        if request.starts_with("GET") {
            workload.write_all(b"5\r\nhello\r\n0\r\nT: v\r\n\r\n").await.unwrap();
        }
        let seen = read_head(&mut client).await.to_lowercase();
        assert!(
            !seen.contains("transfer-encoding") && !seen.contains("trailer") && seen.contains("a: b\r\n"),
            "{seen}"
        );
        let mut body = String::new();
        timeout(SOON, client.read_to_string(&mut body)).await.unwrap().unwrap();
        assert_eq!(body, if request.starts_with("GET") { "hello" } else { "" });
    }
}

#[tokio::test]
async fn another_protocol_than_was_asked_for_is_no_answer() {
    let mut proxy = TestProxy::start(&[]).await;
    for (protocol, status) in [("WebSocket", 101), ("h2c", 502), ("websocket, h2c", 502)] {
        let request = b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
        let (mut client, mut workload, _) = proxy.request(request).await;
        let answer = format!("HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
        workload.write_all(answer.as_bytes()).await.unwrap();
        assert!(read_head(&mut client).await.starts_with(&format!("HTTP/1.1 {status} ")), "{protocol}");
    }
}

#[tokio::test]
async fn a_body_that_its_server_may_not_read_ends_the_connection() {
    let mut proxy = TestProxy::start(&[]).await;
    for (method, again) in [("POST", true), ("PUT", true), ("GET", false), ("DELETE", false), ("OPTIONS", false)] {
        let request = format!("{method} /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi");
        let (mut client, mut workload, sent) = proxy.request(request.as_bytes()).await;
        assert_eq!(
            sent.contains("Connection: close\r\n"),
            !again,
            "a server must not wait for another request: {sent}"
        );
        read_exactly(&mut workload, 2).await;
        workload.write_all(OK).await.unwrap();
        read_head(&mut client).await;
        read_exactly(&mut client, 2).await;
        client.write_all(GET).await.unwrap();
        let mut next = match again {
            true => {
                read_head(&mut workload).await;
                workload
            }
            false => proxy.workload().await.0,
        };
        next.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200 "), "{method}");
    }
}
