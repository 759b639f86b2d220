//! More requests than the Pods can serve, from clients that do not wait for long.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::*;

/// Requests that a Pod takes at the same time.
const CAP: u32 = 2;
/// How long it works on each.
const SERVICE: Duration = Duration::from_millis(20);

/// What happened in the Pods.
#[derive(Default)]
struct Seen {
    in_flight: AtomicU32,
    most: AtomicU32,
    served: AtomicU64,
    wasted: AtomicU64,
}

/// A Pod with a cap, as its sidecar keeps it.
async fn worker(seen: Arc<Seen>) -> SocketAddr {
    let mut pod = Pod::start().await;
    let address = pod.address;
    let busy = Arc::new(AtomicU32::new(0));
    tokio::spawn(async move {
        while let Some(mut io) = pod.accepted.recv().await {
            let (seen, busy) = (seen.clone(), busy.clone());
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while io.read(&mut bytes).await.is_ok_and(|length| length > 0) {
                    if busy.fetch_add(1, Relaxed) >= CAP {
                        busy.fetch_sub(1, Relaxed);
                        io.write_all(FULL).await.unwrap();
                        continue;
                    }
                    seen.most.fetch_max(seen.in_flight.fetch_add(1, Relaxed) + 1, Relaxed);
                    sleep(SERVICE).await;
                    let load = busy.load(Relaxed);
                    seen.in_flight.fetch_sub(1, Relaxed);
                    busy.fetch_sub(1, Relaxed);
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-recif-load: {load}/{CAP}\r\n\r\nok");
                    // Whoever left is not there for the answer.
                    let left = io.try_read(&mut [0]).is_ok();
                    if left || io.write_all(answer.as_bytes()).await.is_err() {
                        seen.wasted.fetch_add(1, Relaxed);
                        return;
                    }
                    seen.served.fetch_add(1, Relaxed);
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn overload_with_clients_that_leave_is_served_to_capacity_and_leaves_nothing_behind() {
    let seen = Arc::new(Seen::default());
    let pods = [worker(seen.clone()).await, worker(seen.clone()).await];
    let gateway = Arc::new(Gateway::start(&[], &pods).await);
    let got = Arc::new(AtomicU64::new(0));
    let mut clients = tokio::task::JoinSet::new();
    // Ten times what two Pods with two slots serve in the time.
    for at in 0..800_u64 {
        let (gateway, got) = (gateway.clone(), got.clone());
        clients.spawn(async move {
            sleep(Duration::from_millis(at / 2)).await;
            let mut client = gateway.asks(GET).await;
            if let Ok((answer, _)) = timeout(Duration::from_millis(100), whole(&mut client)).await
                && answer.starts_with("HTTP/1.1 200 ")
            {
                got.fetch_add(1, Relaxed);
            }
        });
    }
    while clients.join_next().await.is_some() {}
    gateway.until_in_flight(0).await;
    gateway.until_waiting(0).await;
    assert!(seen.most.load(Relaxed) <= CAP * 2, "never more in flight than the caps");
    let (got, served, wasted) = (got.load(Relaxed), seen.served.load(Relaxed), seen.wasted.load(Relaxed));
    assert!(got > 0 && served >= got, "{got} of {served}");
    assert!(wasted <= served, "{wasted} answers for nobody, {served} for somebody");
    assert!(gateway.demand().refused > 0, "more came than may wait");
}
