//! One connection of a client: request after request, until one of the two wants no more.

use std::{io, net::IpAddr, pin::Pin, time::Duration};

use tokio::{
    net::TcpStream,
    time::{Sleep, sleep, timeout},
};

use super::{
    admin::{self, Answer},
    life::Stage,
    relay::{self, Outcome},
    serve::Shared,
};
use crate::http1::{Bad, Fields, Framing, RequestHead, Side};

/// How long a connection may wait for its next request.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a head may take from its first byte.
const HEAD: Duration = Duration::from_secs(10);

/// Serves a connection to its end.
pub(super) async fn serve(io: TcpStream, peer: IpAddr, shared: &Shared) {
    let mut client = Side::new(io);
    let mut timer = std::pin::pin!(sleep(KEEP_ALIVE));
    while let Some(length) = next_head(&mut client).await {
        match request(&mut client, length, peer, shared, timer.as_mut()).await {
            Ok(true) => {}
            Ok(false) => break,
            // The client sees that something is missing, not a clean end.
            Err(Aborted) => {
                let _ = client.io.set_zero_linger();
                return;
            }
        }
    }
    linger(client).await;
}

/// The connection must end in a way that cannot be taken for a clean end.
struct Aborted;

/// Waits for a complete head; `None`: there is none to come, and if the client was at fault it was told.
async fn next_head(client: &mut Side<TcpStream>) -> Option<usize> {
    if client.incoming.is_empty() && !timeout(KEEP_ALIVE, client.fill()).await.ok()?.ok()? {
        return None;
    }
    let refusal = match timeout(HEAD, client.head()).await {
        Ok(Ok(Ok(length))) => return length,
        Ok(Ok(Err(bad))) => of(bad),
        Ok(Err(_)) => return None,
        Err(_) => Answer::refusal(408, "the head of the request did not come within 10 s", "timeout"),
    };
    let _ = tell(client, &refusal, false, true).await;
    None
}

/// Serves one request, whose head has `length` bytes. Whether another one may follow.
async fn request(
    client: &mut Side<TcpStream>,
    length: usize,
    peer: IpAddr,
    shared: &Shared,
    timer: Pin<&mut Sleep>,
) -> Result<bool, Aborted> {
    let rest = client.incoming.split_off(length);
    let bytes = std::mem::replace(&mut client.incoming, rest);
    let mut fields = Fields::default();
    let head = match RequestHead::read(&bytes, &mut fields) {
        Ok(head) => head,
        Err(bad) => return told(client, &of(bad), false, true).await,
    };
    if let Some(answer) = admin::answer(&head, shared).await {
        let close = !head.keeps_alive || head.framing != Framing::Length(0);
        return told(client, &answer, head.is_head(), close).await;
    }
    let refusal = match shared.life.stage() {
        Stage::Draining | Stage::Restarting => Answer::refusal(503, "the workload is shutting down", "draining"),
        Stage::Serving | Stage::LameDuck => match shared.load.take(head.value("x-recif-via").is_some()) {
            Some(slot) => {
                let outcome = relay::relay(client, &head, peer, shared, timer).await;
                drop(slot);
                return match outcome {
                    Outcome::Served { again } => Ok(again),
                    Outcome::Aborted => Err(Aborted),
                    Outcome::Refused(answer) => {
                        shared.metrics.rejected(answer.reason.unwrap_or("upstream"));
                        told(client, &answer, head.is_head(), true).await
                    }
                };
            }
            None => Answer::refusal(503, "as many requests as allowed are in flight", "over-capacity"),
        },
    };
    shared.metrics.rejected(refusal.reason.unwrap_or_default());
    let close = !head.keeps_alive || head.framing != Framing::Length(0) || shared.life.stage() != Stage::Serving;
    told(client, &refusal, head.is_head(), close).await
}

fn of(bad: Bad) -> Answer {
    Answer::refusal(bad.status(), &bad.to_string(), "bad-request")
}

async fn told(client: &mut Side<TcpStream>, answer: &Answer, to_head: bool, close: bool) -> Result<bool, Aborted> {
    Ok(tell(client, answer, to_head, close).await.is_ok() && !close)
}

async fn tell(client: &mut Side<TcpStream>, answer: &Answer, to_head: bool, close: bool) -> io::Result<()> {
    answer.write(to_head, close, &mut client.outgoing);
    client.flush().await
}

/// Closes so that the client can read what it was told: data that arrives at a closed socket would reset it.
async fn linger(mut client: Side<TcpStream>) {
    use tokio::io::AsyncWriteExt as _;
    if client.io.shutdown().await.is_err() {
        return;
    }
    let drain = async {
        loop {
            client.incoming.clear();
            if !matches!(client.fill().await, Ok(true)) {
                return;
            }
        }
    };
    let _ = timeout(Duration::from_secs(1), drain).await;
}
