//! Tests of admission, and of the release of every slot.

use super::*;

#[tokio::test]
async fn no_more_than_the_cap_reaches_the_workload() {
    let mut proxy = TestProxy::start(&[("RECIF_CONCURRENCY", "1")]).await;
    let (mut first, mut workload, _) = proxy.request(GET).await;
    let mut second = proxy.client().await;
    second.write_all(GET).await.unwrap();
    let refused = read_head(&mut second).await;
    assert!(refused.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refused}");
    assert!(refused.contains("x-recif-reason: over-capacity\r\nRetry-After: 1\r\n"), "{refused}");
    assert!(refused.contains("x-recif-load: 1/1\r\n"), "{refused}");
    workload.write_all(OK).await.unwrap();
    read_head(&mut first).await;
    proxy.until_in_flight(0).await;
    // The refused client's connection was kept open.
    let length = refused.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    read_exactly(&mut second, length.parse().unwrap()).await;
    second.write_all(GET).await.unwrap();
    read_head(&mut workload).await;
}

#[tokio::test]
async fn of_a_workloads_own_words_only_that_it_has_no_session_is_passed_on() {
    let mut proxy = TestProxy::start(&[]).await;
    for (expected, passed) in [("no-session", true), ("over-capacity", false), ("draining", false)] {
        let (mut client, mut workload, _) = proxy.request(GET).await;
        let answer = format!(
            "HTTP/1.1 503 Full\r\nConnection: close\r\nContent-Length: 0\r\nx-recif-reason: {expected}\r\nx-recif-load: 9/9\r\n\r\n"
        );
        workload.write_all(answer.as_bytes()).await.unwrap();
        let seen = read_head(&mut client).await;
        assert_eq!(seen.contains(&format!("x-recif-reason: {expected}\r\n")), passed, "{seen}");
        assert!(!seen.contains("9/9"), "{seen}");
        proxy.until_in_flight(0).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_slot_and_the_workload_is_told() {
    let mut proxy = TestProxy::start(&[("RECIF_CONCURRENCY", "1")]).await;
    for streaming in [false, true] {
        let (mut client, mut workload, _) = proxy.request(GET).await;
        if streaming {
            workload.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await.unwrap();
            read_head(&mut client).await;
        }
        drop(client);
        proxy.until_in_flight(0).await;
        let mut rest = Vec::new();
        timeout(SOON, workload.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_reset_frees_the_slot_and_it_is_free_only_when_the_workload_sees_the_end() {
    let mut proxy = TestProxy::start(&[("RECIF_CONCURRENCY", "1")]).await;
    for _ in 0..20 {
        let (client, workload, _) = proxy.request(GET).await;
        client.set_zero_linger().unwrap();
        drop(client);
        proxy.until_in_flight(0).await;
        let end = std::io::Read::read(&mut workload.into_std().unwrap(), &mut [0]);
        assert!(!end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "the end was there already");
    }
}

#[tokio::test]
async fn a_client_that_asks_too_far_ahead_is_still_seen_to_leave() {
    let mut proxy = TestProxy::start(&[]).await;
    let (mut client, mut workload, _) = proxy.request(GET).await;
    workload.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    read_head(&mut client).await;
    client.write_all(&GET.repeat(10_000)).await.unwrap();
    drop(client);
    proxy.until_in_flight(0).await;
}

#[tokio::test]
async fn what_was_asked_too_far_ahead_is_not_answered_and_the_connection_ends() {
    let mut proxy = TestProxy::start(&[]).await;
    let (mut client, mut workload, _) = proxy.request(GET).await;
    client.write_all(&GET.repeat(2_000)).await.unwrap();
    workload.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    read_head(&mut client).await;
    workload.write_all(b"0\r\n\r\n").await.unwrap();
    let mut rest = String::new();
    timeout(SOON, client.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, "0\r\n\r\n");
}

#[tokio::test]
async fn streams_that_only_listen_are_counted_apart() {
    let mut proxy = TestProxy::start(&[("RECIF_CONCURRENCY", "1"), ("RECIF_LISTEN_STREAMS", "true")]).await;
    let subscribe = b"POST /x HTTP/1.1\r\nHost: h\r\nMcp-Method: subscriptions/listen\r\nContent-Length: 0\r\n\r\n";
    let answer =
        "HTTP/1.1 200 OK\r\nContent-Type: Text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut listeners = Vec::new();
    for asks in [GET, subscribe] {
        let (mut listener, mut workload, _) = proxy.request(asks).await;
        workload.write_all(answer.as_bytes()).await.unwrap();
        assert!(read_head(&mut listener).await.contains("x-recif-load: 0/1\r\n"));
        listeners.push((listener, workload));
    }
    let streams = |proxy: &TestProxy| serde_json::to_value(proxy.shared.load.report()).unwrap()["streams"].as_u64();
    assert_eq!((proxy.shared.load.in_flight(), streams(&proxy)), (0, Some(2)));

    let (mut caller, mut called, _) = proxy.request(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").await;
    called.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await.unwrap();
    read_head(&mut caller).await;
    assert_eq!((proxy.shared.load.in_flight(), streams(&proxy)), (1, Some(2)), "an answer to a POST is work");
    drop((caller, listeners));
    proxy.until_in_flight(0).await;
    let gone = async {
        while streams(&proxy) != Some(0) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, gone).await.unwrap();
}
