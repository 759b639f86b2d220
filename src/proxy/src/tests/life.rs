//! Tests of lame duck and drain.

use super::{super::drain::DrainStage, *};

#[tokio::test]
async fn a_pod_that_goes_serves_as_before_then_refuses_and_waits_for_what_is_in_flight() {
    let mut proxy = TestProxy::start(&[("RECIF_LAME_DUCK", "500ms"), ("RECIF_SHUTDOWN_TIMEOUT", "20s")]).await;
    let (mut stream, mut held, _) = proxy.request(GET).await;
    held.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    read_head(&mut stream).await;

    assert!(proxy.answer(hook("/_recif/lame-duck").as_bytes()).await.starts_with("HTTP/1.1 200 "));
    let mut drain = proxy.client().await;
    drain.write_all(hook("/_recif/drain").as_bytes()).await.unwrap();
    let ready = proxy.answer(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(ready.starts_with("HTTP/1.1 200 "), "a lame duck stays ready");
    let (mut late, mut workload, _) = proxy.request(GET).await;
    workload.write_all(OK).await.unwrap();
    assert!(
        read_head(&mut late).await.contains("Connection: close\r\n"),
        "served, and asked to go elsewhere next time"
    );

    let refused = async {
        loop {
            let answer = proxy.answer(b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            tokio::select! {
                answer = answer => if answer.starts_with("HTTP/1.1 503 ") { return answer },
                // Still a lame duck: the workload got the request.
                () = sleep(Duration::from_millis(100)) => {}
            }
        }
    };
    let answer = timeout(SOON, refused).await.unwrap();
    assert!(answer.contains("x-recif-reason: draining\r\nRetry-After: 1\r\n"), "{answer}");
    held.write_all(b"1\r\na\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(read_exactly(&mut stream, 11).await, "1\r\na\r\n0\r\n\r\n", "no stream was cut");
    assert!(read_head(&mut drain).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(proxy.shared.load.in_flight(), 0);
}

#[tokio::test]
async fn what_does_not_end_in_time_is_cut_off() {
    let mut proxy = TestProxy::start(&[("RECIF_LAME_DUCK", "50ms"), ("RECIF_SHUTDOWN_TIMEOUT", "100ms")]).await;
    let (mut client, _held, _) = proxy.request(GET).await;
    proxy.answer(hook("/_recif/lame-duck").as_bytes()).await;
    let mut rest = Vec::new();
    let end = timeout(SOON, client.read_to_end(&mut rest)).await.unwrap();
    assert!(end.is_err(), "{end:?} {rest:?}");
    proxy.until_in_flight(0).await;
}

#[tokio::test]
async fn a_restart_of_the_workload_alone_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = TestProxy::before(address, &[]).await;
    // No lame duck comes before the drain.
    assert!(proxy.answer(hook("/_recif/drain").as_bytes()).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(proxy.shared.drain.stage(), DrainStage::Serving, "it refuses nothing by itself");
    let ready = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(proxy.answer(ready).await.starts_with("HTTP/1.1 200 "));

    drop(listener);
    // The old workload has exited only when its port is closed.
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, closed).await.unwrap();
    let request = b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let refused = async {
        loop {
            let answer = proxy.answer(request).await;
            if answer.starts_with("HTTP/1.1 503 ") {
                return answer;
            }
        }
    };
    let answer = timeout(SOON, refused).await.unwrap();
    assert!(answer.contains("Retry-After: 1\r\n"), "{answer}");
    assert_eq!(proxy.shared.drain.stage(), DrainStage::Restarting);
    assert!(proxy.answer(ready).await.starts_with("HTTP/1.1 503 "));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    let _listener = socket.listen(64).unwrap();
    let back = async {
        while !proxy.answer(ready).await.starts_with("HTTP/1.1 200 ") {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, back).await.unwrap();
    assert_eq!(proxy.shared.drain.stage(), DrainStage::Serving);
}

#[tokio::test(start_paused = true)]
async fn a_drain_returns_when_nothing_is_in_flight_or_the_time_is_up() {
    let nowhere = "127.0.0.1:1".parse().unwrap();
    for (held_for, returns_after) in [(0, 5), (3, 5), (12, 12), (600, 30)] {
        let shared = shared(nowhere, &[]);
        let begun = tokio::time::Instant::now();
        let slot = shared.load.acquire(false, tokio::time::Instant::now()).unwrap();
        shared.drain.begin_lame_duck();
        tokio::spawn(async move {
            sleep(Duration::from_secs(held_for)).await;
            drop(slot);
        });
        shared.drain.drain().await;
        assert_eq!(begun.elapsed().as_secs(), returns_after, "held for {held_for} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_for_a_restart_waits_for_five_seconds_at_most() {
    let shared = shared("127.0.0.1:1".parse().unwrap(), &[]);
    let _slot = shared.load.acquire(false, tokio::time::Instant::now()).unwrap();
    let begun = tokio::time::Instant::now();
    shared.drain.drain().await;
    assert_eq!(
        (begun.elapsed().as_secs(), shared.drain.stage()),
        (6, DrainStage::Restarting),
        "no socket listens at that port"
    );
    // A lame duck overrides a restart.
    shared.drain.begin_lame_duck();
    assert_eq!(shared.drain.stage(), DrainStage::LameDuck);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_go_after_all_serves_again() {
    let shared = shared("127.0.0.1:1".parse().unwrap(), &[]);
    shared.drain.begin_lame_duck();
    for (after, stage) in
        [(4, DrainStage::LameDuck), (2, DrainStage::Draining), (38, DrainStage::Draining), (2, DrainStage::Serving)]
    {
        sleep(Duration::from_secs(after)).await;
        assert_eq!(shared.drain.stage(), stage);
    }
    shared.drain.begin_lame_duck();
    assert_eq!(shared.drain.stage(), DrainStage::LameDuck, "and can go another time");
}
