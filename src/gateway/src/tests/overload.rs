//! Tests of overload: more requests than the Pods can serve, from impatient clients. Time is virtual.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::*;

/// Number of Pods, and concurrency cap of each.
const PODS: u32 = 2;
const CAP: u32 = 2;
/// Time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(1);

/// Requests in work in all Pods, and their peak.
#[derive(Default)]
struct LoadCounts {
    in_flight: AtomicU32,
    peak: AtomicU32,
}

/// Starts a Pod with a cap, as its sidecar enforces it, that works for `service` on each request.
async fn worker(seen: Arc<LoadCounts>, service: Duration) -> SocketAddr {
    let mut pod = TestPod::start().await;
    let address = pod.address;
    let busy = Arc::new(AtomicU32::new(0));
    tokio::spawn(async move {
        while let Some(io) = pod.accepted.recv().await {
            tokio::spawn(work(io, seen.clone(), busy.clone(), service));
        }
    });
    address
}

async fn work(mut io: TcpStream, seen: Arc<LoadCounts>, busy: Arc<AtomicU32>, service: Duration) {
    let mut bytes = [0; 4096];
    while io.read(&mut bytes).await.is_ok_and(|length| length > 0) {
        if busy.load(Relaxed) >= CAP {
            io.write_all(FULL).await.unwrap();
            continue;
        }
        busy.fetch_add(1, Relaxed);
        seen.peak.fetch_max(seen.in_flight.fetch_add(1, Relaxed) + 1, Relaxed);
        let stays = tokio::select! {
            () = sleep(service) => true,
            // A client that leaves frees the slot.
            _ = io.read(&mut bytes) => false,
        };
        let load = busy.fetch_sub(1, Relaxed);
        seen.in_flight.fetch_sub(1, Relaxed);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-recif-load: {load}/{CAP}\r\n\r\nok");
        if !stays || io.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn overload_with_clients_that_leave_is_served_to_capacity_and_leaves_nothing_behind() {
    for (service, seconds) in [(Duration::from_millis(100), 2), (Duration::from_millis(500), 6)] {
        let seen = Arc::new(LoadCounts::default());
        let mut pods = Vec::new();
        for _ in 0..PODS {
            pods.push(worker(seen.clone(), service).await);
        }
        let gateway = Arc::new(TestGateway::start(&[], &pods).await);
        let capacity = f64::from(seconds * PODS * CAP) / service.as_secs_f64();
        // Ten times the capacity arrives.
        let count = capacity as u32 * 10;
        let mut clients = tokio::task::JoinSet::new();
        for at in 0..count {
            let gateway = gateway.clone();
            clients.spawn(async move {
                sleep(Duration::from_secs(seconds.into()) * at / count).await;
                let mut client = gateway.send(GET).await;
                let answer = timeout(PATIENCE, whole(&mut client)).await;
                answer.is_ok_and(|(head, _)| head.starts_with("HTTP/1.1 200 "))
            });
        }
        let served = clients.join_all().await.into_iter().filter(|served| *served).count();
        gateway.until_in_flight(0).await;
        gateway.until_waiting(0).await;
        assert_eq!(seen.in_flight.load(Relaxed), 0);
        assert!(seen.peak.load(Relaxed) <= PODS * CAP, "never more in work than the caps allow");
        assert!(served as f64 >= capacity * 0.95, "{served} served of {capacity} that could be, {service:?} each");
    }
}
