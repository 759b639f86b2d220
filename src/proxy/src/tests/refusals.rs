//! Tests of requests that are refused and never forwarded.

use testing::bad_requests;

use super::*;

#[tokio::test]
async fn bad_requests_are_answered_and_never_passed_on() {
    let mut proxy = TestProxy::start(&[]).await;
    for bad in bad_requests::bad_heads("/x") {
        let answer = proxy.answer(&bad.bytes).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {} ", bad.status)), "{}: {answer}", bad.name);
        assert!(answer.contains("\r\nConnection: close\r\n"), "{}: {answer}", bad.name);
        assert_eq!(
            answer.matches("Content-Length: ").count(),
            1,
            "{}: what follows is not a request: {answer}",
            bad.name
        );
    }
    assert!(proxy.accepted.try_recv().is_err(), "no connection reached the workload");
}

#[tokio::test]
async fn a_bad_request_behind_a_good_one_is_refused_too() {
    let mut proxy = TestProxy::start(&[]).await;
    for bad in bad_requests::bad_heads("/x") {
        let (mut client, mut workload, seen) =
            proxy.request(&[b"GET /good HTTP/1.1\r\nHost: h\r\n\r\n", bad.bytes.as_slice()].concat()).await;
        assert!(seen.starts_with("GET /good "), "{}: {seen}", bad.name);
        workload.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await.unwrap();
        let mut answers = String::new();
        timeout(SOON, client.read_to_string(&mut answers)).await.unwrap().unwrap();
        let (_, second) = answers.split_once("\r\n\r\nok").unwrap();
        // A client that pipelines too much gets no response to it.
        let expected = if bad.bytes.len() > 16_000 { String::new() } else { format!("HTTP/1.1 {} ", bad.status) };
        assert!(second.starts_with(&expected), "{}: {answers}", bad.name);
        let mut rest = Vec::new();
        timeout(SOON, workload.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.is_empty(), "{}: {rest:?}", bad.name);
    }
    assert!(proxy.accepted.try_recv().is_err(), "nothing else was asked of the workload");
}

#[tokio::test]
async fn bad_chunks_are_refused_where_they_begin_and_the_request_is_never_ended() {
    let mut proxy = TestProxy::start(&[]).await;
    let refused = |name: &str, answer: &str| {
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name:?}: {answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{name:?}: {answer}");
    };
    for bad in bad_requests::bad_bodies("/x") {
        // In one piece, nothing of the body is forwarded.
        refused(bad.name, &proxy.answer(&bad.bytes).await);
        let mut silent = timeout(SOON, proxy.accepted.recv()).await.unwrap().unwrap();
        assert!(!matches!(timeout(SOON, silent.read(&mut [0])).await.unwrap(), Ok(1..)), "{:?}", bad.name);

        let good = bad.bytes.len() - bad.name.len();
        let (mut client, mut workload, _) = proxy.request(&bad.bytes[..good]).await;
        client.write_all(&bad.bytes[good..]).await.unwrap();
        refused(bad.name, &read_head(&mut client).await);
        let mut rest = Vec::new();
        // The workload sees a truncated body, or a reset.
        let _ = timeout(SOON, workload.read_to_end(&mut rest)).await.unwrap();
        assert!(b"2\r\nok\r\n".starts_with(&rest), "{:?}: {rest:?}", bad.name);
        proxy.until_in_flight(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_given_up_after_ten_seconds() {
    let mut proxy = TestProxy::start(&[]).await;
    let client = proxy.client().await;
    let started = tokio::time::Instant::now();
    let (mut read, mut write) = client.into_split();
    let drip = tokio::spawn(async move {
        for byte in GET.iter().cycle().take_while(|byte| **byte != b'\n') {
            // The proxy may have closed the connection.
            let _ = write.write_all(&[*byte]).await;
            sleep(Duration::from_secs(1)).await;
        }
    });
    let mut answer = Vec::new();
    // Bytes that arrive after the response may reset the connection.
    let _ = read.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(started.elapsed() <= Duration::from_secs(12), "{:?}", started.elapsed());
    drip.abort();
    assert!(proxy.accepted.try_recv().is_err());
}

#[tokio::test]
async fn what_a_server_could_read_otherwise_is_not_passed_on() {
    let mut proxy = TestProxy::start(&[]).await;
    for cleaned in bad_requests::sanitized_requests("/x") {
        let (mut client, mut workload, seen) = proxy.request(&cleaned.bytes).await;
        let body = read_exactly(&mut workload, cleaned.body.len()).await;
        assert_eq!(body, cleaned.body, "{}", cleaned.name);
        for absent in cleaned.absent {
            assert!(!seen.to_lowercase().contains(absent), "{}: {seen}", cleaned.name);
        }
        workload.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await.unwrap();
        assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200 "), "{}", cleaned.name);
        let mut rest = String::new();
        timeout(SOON, workload.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, "", "{}", cleaned.name);
    }
}
