//! Tests that every slot is released, whatever clients and workloads do.

use tokio::task::JoinSet;

use super::*;

/// Pseudorandom numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        // Xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Responds to requests on one connection: completely, in part, wrongly, or not at all.
async fn moody_workload(mut io: TcpStream, mut dice: Dice) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    while io.read(&mut buffer).await? > 0 {
        let answer: &[u8] = match dice.below(6) {
            0 => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            1 => b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n\r\nuntil the end",
            2 => b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcdefgh",
            3 => b"nonsense\r\n\r\n",
            4 => b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
            _ => OK,
        };
        let part = if dice.below(3) == 0 { dice.below(answer.len() as u64) as usize } else { answer.len() };
        io.write_all(&answer[..part]).await?;
        match dice.below(8) {
            0 => return Ok(()),
            1 => return io.set_zero_linger(),
            2 => sleep(Duration::from_millis(dice.below(20))).await,
            _ => {}
        }
    }
    Ok(())
}

/// Sends requests in pieces, and closes at any time in any way.
async fn moody_client(address: SocketAddr, mut dice: Dice) -> std::io::Result<()> {
    let mut io = TcpStream::connect(address).await?;
    let mut buffer = [0; 4096];
    for _ in 0..=dice.below(3) {
        let request: &[u8] = match dice.below(6) {
            0 => b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
            1 => b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            2 => b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
            3 => b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
            4 => b"GET /x HTTP/1.0\r\n\r\n",
            _ => GET,
        };
        let cut = dice.below(request.len() as u64) as usize;
        io.write_all(&request[..cut]).await?;
        match dice.below(6) {
            0 => return Ok(()),
            1 => return io.set_zero_linger(),
            2 => io.shutdown().await?,
            _ => tokio::task::yield_now().await,
        }
        io.write_all(&request[cut..]).await?;
        if dice.below(3) > 0 {
            let _ = timeout(Duration::from_millis(dice.below(30)), io.read(&mut buffer)).await;
        }
        if dice.below(4) == 0 {
            return io.set_zero_linger();
        }
    }
    Ok(())
}

#[tokio::test]
async fn whatever_clients_and_workloads_do_every_slot_comes_back() {
    const CAP: u32 = 8;
    let mut proxy =
        TestProxy::start(&[("RECIF_CONCURRENCY", "8"), ("RECIF_TIMEOUT", "200ms"), ("RECIF_IDLE_TIMEOUT", "200ms")])
            .await;
    let mut accepted = std::mem::replace(&mut proxy.accepted, mpsc::unbounded_channel().1);
    let workload = tokio::spawn(async move {
        let mut seed = 1;
        while let Some(io) = accepted.recv().await {
            seed += 2;
            tokio::spawn(moody_workload(io, Dice(seed)));
        }
    });
    let mut clients = JoinSet::new();
    for seed in 1..=1200 {
        // Every outcome of a client is allowed.
        clients.spawn(moody_client(proxy.address, Dice(seed * 7919)));
        assert!(proxy.shared.load.in_flight() <= CAP);
        if clients.len() >= 24 {
            timeout(SOON, clients.join_next()).await.unwrap();
        }
    }
    while timeout(SOON, clients.join_next()).await.unwrap().is_some() {}
    // Connections are accepted in order: after this one, none of theirs is pending.
    proxy.answer(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    proxy.until_in_flight(0).await;
    let report = serde_json::to_value(proxy.shared.load.report()).unwrap();
    assert!(report["completed"].as_u64().unwrap() > 200, "{report}");
    let slots: Vec<_> = (0..CAP).map(|_| proxy.shared.load.acquire(false, tokio::time::Instant::now())).collect();
    assert!(
        slots.iter().all(Option::is_some) && proxy.shared.load.acquire(false, tokio::time::Instant::now()).is_none()
    );
    workload.abort();
}
