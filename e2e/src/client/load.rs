//! Closed-loop load generator: every client sends its next request after the previous one has ended, and every failed
//! request and every cut stream is reported.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use futures::future::join_all;
use tokio::{sync::watch, time::sleep};

use super::{ClientTarget, HttpClientConnection, HttpClientResponse};
use crate::env::Env;

/// Number of failures whose message is kept.
const KEPT: usize = 8;

/// Load for each target: the number of concurrent clients of each kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadProfile {
    /// Clients that send short requests, one after another.
    pub(crate) requests: usize,
    /// Clients that open streams, one after another.
    pub(crate) streams: usize,
    /// Duration of each stream.
    pub(crate) stream: Duration,
    /// Reason (`X-Recif-Reason`) of a 503 after which clients wait for `Retry-After` and retry, instead of reporting a
    /// failure.
    pub(crate) retry_on: Option<&'static str>,
}

/// Results of the load.
#[derive(Debug, Default)]
struct LoadTally {
    requests: usize,
    streams: usize,
    failed: usize,
    failures: Vec<String>,
}

/// Load on one or more targets, which runs until it is stopped.
#[derive(Debug)]
pub(crate) struct BackgroundLoad {
    stop: watch::Sender<bool>,
    tally: tokio::task::JoinHandle<Result<LoadTally>>,
}

impl BackgroundLoad {
    /// Starts the clients in the network of the cluster.
    pub(crate) async fn start(env: &Env, targets: &[ClientTarget], plan: LoadProfile) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let inside = env.netns().await?;
        let targets = targets.to_vec();
        let work = async move {
            let clients = targets.iter().flat_map(|target| {
                let start = |sort| client(target.clone(), sort, plan.retry_on, stopped.clone());
                let requests = (0..plan.requests).map(|_| start(LoadClientKind::Request));
                let streams = (0..plan.streams).map(|_| start(LoadClientKind::Stream(plan.stream)));
                requests.chain(streams).collect::<Vec<_>>()
            });
            let mut sum = LoadTally::default();
            join_all(clients).await.into_iter().for_each(|tally| sum.add(tally));
            Ok(sum)
        };
        Ok(Self { stop, tally: tokio::spawn(async move { inside.run(work).await }) })
    }

    /// Stops the load after the requests in flight have ended; an error if a request failed, or if fewer requests or
    /// streams than these succeeded.
    pub(crate) async fn stop(self, requests: usize, streams: usize) -> Result<()> {
        self.stop.send_replace(true);
        let tally = self.tally.await??;
        if tally.failed > 0 {
            bail!(
                "{} of {} failed:\n    {}",
                tally.failed,
                tally.requests + tally.streams + tally.failed,
                tally.failures.join("\n    ")
            );
        }
        ensure!(tally.requests >= requests && tally.streams >= streams, "the load did too little: {tally:?}");
        Ok(())
    }
}

impl LoadTally {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.streams += other.streams;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.truncate(KEPT);
    }
}

#[derive(Debug, Clone, Copy)]
enum LoadClientKind {
    Request,
    Stream(Duration),
}

/// Sends one request after another until it is stopped, on the same connection as long as the server keeps it open.
async fn client(
    target: ClientTarget,
    sort: LoadClientKind,
    come_again: Option<&'static str>,
    stopped: watch::Receiver<bool>,
) -> LoadTally {
    let started = Instant::now();
    let mut tally = LoadTally::default();
    let mut connection = None;
    while !*stopped.borrow() {
        let ended = match sort {
            LoadClientKind::Request => send_request(&target, &mut connection).await,
            LoadClientKind::Stream(length) => read_stream(&target, length).await,
        };
        match (ended, sort) {
            (Ok(Some(refused)), _) if come_again == Some(&*refused.reason) => {
                connection = None;
                sleep(refused.after).await;
            }
            (Ok(None), LoadClientKind::Request) => tally.requests += 1,
            (Ok(None), LoadClientKind::Stream(_)) => tally.streams += 1,
            (ended, _) => {
                let error = match ended {
                    Ok(refused) => anyhow!("refused: {refused:?}"),
                    Err(error) => error,
                };
                let (way, after) = (target.route, started.elapsed().as_secs_f32());
                tally.failed += 1;
                tally.failures.push(format!("{way}, {sort:?}, after {after:.1} s: {error:#}"));
                tally.failures.truncate(KEPT);
                connection = None;
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    tally
}

/// Refused attempt: nothing was done.
#[derive(Debug)]
struct RefusedAttempt {
    reason: String,
    /// Wait before the next attempt.
    after: Duration,
}

/// Sends a short request.
async fn send_request(
    target: &ClientTarget,
    kept: &mut Option<HttpClientConnection>,
) -> Result<Option<RefusedAttempt>> {
    let mut connection = match kept.take().filter(HttpClientConnection::is_reusable) {
        Some(connection) => connection,
        None => HttpClientConnection::open(target).await?,
    };
    let answer = connection.send("GET", "/sleep?ms=50", "").await?;
    if let Some(refused) = refused_attempt(&answer) {
        return Ok(Some(refused));
    }
    ensure!(answer.status == 200 && answer.text == "slept", "{answer:?}");
    *kept = Some(connection);
    Ok(None)
}

/// Reads a stream to its end.
async fn read_stream(target: &ClientTarget, length: Duration) -> Result<Option<RefusedAttempt>> {
    let mut connection = HttpClientConnection::open(target).await?;
    let answer = connection.begin("GET", &format!("/hold?ms={}", length.as_millis()), "").await?;
    if let Some(refused) = refused_attempt(&answer) {
        return Ok(Some(refused));
    }
    ensure!(answer.status == 200, "{answer:?}");
    let mut last = String::new();
    while let Some(event) = connection.next().await? {
        last = event;
    }
    ensure!(last == "data: end\n\n", "the stream ended early, with {last:?}");
    Ok(None)
}

fn refused_attempt(answer: &HttpClientResponse) -> Option<RefusedAttempt> {
    let seconds = answer.header("retry-after").filter(|_| answer.status == 503)?.parse().ok()?;
    let reason = answer.header("x-recif-reason")?.to_owned();
    Some(RefusedAttempt { reason, after: Duration::from_secs(seconds) })
}
