//! Long polls to the gateways: a gateway answers when requests begin to wait for a workload without a ready Pod, so that this is noticed
//! long before the next round.

use std::{collections::HashMap, io, net::SocketAddr, time::Duration};

use futures::{
    StreamExt as _,
    future::{BoxFuture, pending},
    stream::FuturesUnordered,
};
use http1::{QueryError, QueryResponse, get_request, query};
use identity::COLD_DEMAND_PATH;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::gateways::ColdSample;

/// Longest wait for a gateway that has nothing to report.
const POLL_TIMEOUT: Duration = Duration::from_secs(30);
/// Shortest interval of the polls to a gateway that always has something to report.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// Delay after a refusal, such as by an older gateway that does not know long polls.
const REFUSED_RETRY: Duration = Duration::from_secs(10);
/// Longest response in bytes; it names every workload that requests wait for.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Outcome of a poll.
pub(super) struct PollResponse {
    /// The gateway.
    pub(super) address: SocketAddr,
    number: u64,
    reply: Result<QueryResponse, QueryError>,
}

/// Long polls of all gateways.
///
/// Invariant: of the polls of a gateway in flight, only the one with its `number` counts.
#[derive(Default)]
pub(super) struct ColdPolls {
    gateways: HashMap<SocketAddr, PolledGateway>,
    in_flight: FuturesUnordered<BoxFuture<'static, PollResponse>>,
    number: u64,
}

/// Gateway that is polled.
#[derive(Clone, Copy, Default)]
struct PolledGateway {
    /// Number of the poll that counts: one from before the gateway was away does not.
    number: u64,
    /// `times` of its last response.
    times: Option<u64>,
    /// Time at which a gateway that refused is polled again.
    retry_at: Option<Instant>,
}

impl ColdPolls {
    /// Polls those gateways at `addresses` that are not polled yet, and forgets all others.
    pub(super) fn begin(&mut self, addresses: &[SocketAddr], fields: &[(&str, &str)]) {
        let now = Instant::now();
        self.gateways
            .retain(|address, gateway| addresses.contains(address) && gateway.retry_at.is_none_or(|again| again > now));
        for address in addresses {
            if !self.gateways.contains_key(address) {
                self.gateways.insert(*address, PolledGateway::default());
                self.poll(*address, None, Duration::ZERO, fields);
            }
        }
    }

    /// Waits for the next outcome.
    pub(super) async fn next(&mut self) -> PollResponse {
        match self.in_flight.next().await {
            Some(answer) => answer,
            None => pending().await,
        }
    }

    /// Handles an outcome and polls its gateway again. One that did not answer is polled again by [`begin`](Self::begin).
    pub(super) fn handle_response(&mut self, answer: PollResponse, fields: &[(&str, &str)]) -> Option<ColdSample> {
        let PollResponse { address, number, reply } = answer;
        let gateway = self.gateways.get_mut(&address).filter(|gateway| gateway.number == number)?;
        let read = |reply: QueryResponse| {
            let sample = serde_json::from_slice::<ColdSample>(&reply.body).ok().filter(|_| reply.status == 200);
            sample.map(|sample| (sample, reply.connection))
        };
        match reply.map(read) {
            Ok(Some((sample, connection))) => {
                gateway.times = Some(sample.times);
                self.poll(address, connection, MIN_INTERVAL, fields);
                Some(sample)
            }
            Ok(None) => {
                gateway.retry_at = Some(Instant::now() + REFUSED_RETRY);
                None
            }
            Err(error) => {
                tracing::debug!(%address, %error, "a gateway does not report which workloads have waiting requests");
                self.gateways.remove(&address);
                None
            }
        }
    }

    fn poll(&mut self, address: SocketAddr, kept: Option<TcpStream>, pause: Duration, fields: &[(&str, &str)]) {
        let Some(gateway) = self.gateways.get_mut(&address) else { return };
        self.number += 1;
        gateway.number = self.number;
        let number = self.number;
        let path = gateway
            .times
            .map_or_else(|| COLD_DEMAND_PATH.to_owned(), |times| format!("{COLD_DEMAND_PATH}?after={times}"));
        let request = get_request(&path, fields);
        self.in_flight.push(Box::pin(async move {
            sleep(pause).await;
            let reply = timeout(POLL_TIMEOUT, query(address, kept, &request, MAX_BODY_BYTES)).await;
            let reply = reply.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
            PollResponse { address, number, reply }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Serves a gateway that answers each poll with this body, and counts the polls.
    async fn gateway(status: &'static str, body: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let count = count.clone();
                tokio::spawn(async move {
                    while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {
                        count.fetch_add(1, Relaxed);
                        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        (address, asked)
    }

    const NOTHING: &str = r#"{"times":0,"workloads":[]}"#;

    /// Polls for so long, with a round each 50 ms.
    async fn go_on(polls: &mut ColdPolls, addresses: &[SocketAddr], length: Duration) {
        let until = Instant::now() + length;
        while Instant::now() < until {
            polls.begin(addresses, &[]);
            if let Ok(answer) = timeout(Duration::from_millis(50), polls.next()).await {
                polls.handle_response(answer, &[]);
            }
        }
    }

    #[tokio::test]
    async fn one_that_always_has_something_to_tell_is_asked_five_times_a_second() {
        let (address, asked) = gateway("200 OK", NOTHING).await;
        go_on(&mut ColdPolls::default(), &[address], Duration::from_secs(1)).await;
        assert!((3..=6).contains(&asked.load(Relaxed)), "{asked:?}");
    }

    #[tokio::test]
    async fn an_older_one_is_asked_once_in_ten_seconds() {
        let (address, asked) = gateway("404 Not Found", "").await;
        go_on(&mut ColdPolls::default(), &[address], Duration::from_secs(1)).await;
        assert_eq!(asked.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn one_that_left_is_asked_no_more_and_one_that_is_back_by_one_poll() {
        let (address, asked) = gateway("200 OK", NOTHING).await;
        let mut polls = ColdPolls::default();
        go_on(&mut polls, &[address], Duration::from_millis(500)).await;
        polls.begin(&[], &[]);
        polls.begin(&[address], &[]);
        go_on(&mut polls, &[address], Duration::from_millis(500)).await;
        assert_eq!(polls.in_flight.len(), 1, "the poll from before has ended, and was not begun again");
        go_on(&mut polls, &[], Duration::from_millis(500)).await;
        let before = asked.load(Relaxed);
        go_on(&mut polls, &[], Duration::from_millis(500)).await;
        assert_eq!((asked.load(Relaxed), polls.in_flight.len()), (before, 0));
    }

    #[tokio::test]
    async fn the_next_poll_says_what_was_heard_last_on_the_same_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut polls = ColdPolls::default();
        polls.begin(&[address], &[]);
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            assert!(request[..read].starts_with(b"GET /_recif/demand/cold HTTP/1.1\r\n"));
            let body = r#"{"times":7,"workloads":[]}"#;
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream
        };
        let (mut stream, answer) = tokio::join!(server, polls.next());
        assert!(polls.handle_response(answer, &[]).is_some());
        let again = async {
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        };
        let (request, _) = tokio::join!(again, timeout(Duration::from_secs(1), polls.next()));
        assert!(request.starts_with("GET /_recif/demand/cold?after=7 "), "{request}");
    }

    #[tokio::test]
    async fn one_that_refused_is_asked_again_in_time_and_one_that_broke_off_in_the_next_round() {
        let (address, asked) = gateway("404 Not Found", "").await;
        let mut polls = ColdPolls::default();
        go_on(&mut polls, &[address], Duration::from_millis(300)).await;
        assert_eq!(asked.load(Relaxed), 1);
        polls.gateways.get_mut(&address).unwrap().retry_at = Some(Instant::now());
        go_on(&mut polls, &[address], Duration::from_millis(300)).await;
        assert_eq!(asked.load(Relaxed), 2);
        let (address, asked) = gateway("is no status", "").await;
        go_on(&mut ColdPolls::default(), &[address], Duration::from_millis(300)).await;
        assert!(asked.load(Relaxed) > 1, "{asked:?}");
    }
}
