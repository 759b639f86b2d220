//! Closed-loop load generator: every client sends its next request after the previous one has ended, and every failed
//! request and every cut stream is reported.

use std::{iter::repeat_n, time::Duration};

use anyhow::{Result, bail, ensure};
use futures::future::join_all;
use jiff::Timestamp;
use tokio::{sync::watch, time::sleep};

use super::{ClientTarget, HttpClientConnection, HttpClientResponse};
use crate::env::Env;

/// Number of failures whose message is kept.
const KEPT: usize = 40;

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

/// One client of the load, which does the same again and again.
#[derive(Debug, Clone)]
pub(crate) struct LoadClient {
    /// Target of its requests.
    pub(crate) target: ClientTarget,
    /// Its repeated action.
    pub(crate) exchange: Exchange,
    /// Sends its requests on one connection as long as the server keeps it open; else each one has a connection of its own.
    pub(crate) keeps_connection: bool,
    /// Pause after each success.
    pub(crate) pause: Duration,
    /// As in [`LoadProfile`].
    pub(crate) retry_on: Option<&'static str>,
}

/// Repeated action of a client.
#[derive(Debug, Clone)]
pub(crate) enum Exchange {
    /// Sends a short request.
    Request {
        /// Method.
        method: &'static str,
        /// Path below the prefix of the target.
        path: String,
        /// Body; empty: none.
        body: String,
        /// Text that the body of the answer, whose status is 200, must contain.
        answer: String,
    },
    /// Reads a stream of this duration to its end.
    Stream(Duration),
}

/// Results of the load.
#[derive(Debug, Default)]
pub(crate) struct LoadTally {
    /// Short requests that succeeded.
    pub(crate) requests: usize,
    /// Streams that came to their end.
    pub(crate) streams: usize,
    /// Requests and streams that failed.
    pub(crate) failed: usize,
    failures: Vec<String>,
}

/// Load on one or more targets, which runs until it is stopped.
#[derive(Debug)]
pub(crate) struct BackgroundLoad {
    stop: watch::Sender<bool>,
    tally: tokio::task::JoinHandle<Result<LoadTally>>,
}

impl BackgroundLoad {
    /// Starts the same clients for each target.
    pub(crate) async fn start(env: &Env, targets: &[ClientTarget], plan: LoadProfile) -> Result<Self> {
        let clients = targets.iter().flat_map(|target| {
            let client = |exchange| LoadClient {
                target: target.clone(),
                exchange,
                keeps_connection: true,
                pause: Duration::ZERO,
                retry_on: plan.retry_on,
            };
            let streams = repeat_n(client(Exchange::Stream(plan.stream)), plan.streams);
            repeat_n(client(Exchange::sleep()), plan.requests).chain(streams)
        });
        Self::of(env, clients.collect()).await
    }

    /// Starts the clients in the network of the cluster.
    pub(crate) async fn of(env: &Env, clients: Vec<LoadClient>) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let inside = env.netns().await?;
        let work = async move {
            let mut sum = LoadTally::default();
            let ended = join_all(clients.into_iter().map(|client| client.run(stopped.clone()))).await;
            ended.into_iter().for_each(|tally| sum.add(tally));
            Ok(sum)
        };
        Ok(Self { stop, tally: tokio::spawn(async move { inside.run(work).await }) })
    }

    /// Stops the load after the requests in flight have ended.
    pub(crate) async fn end(self) -> Result<LoadTally> {
        self.stop.send_replace(true);
        self.tally.await?
    }

    /// Stops the load; an error if a request failed, or if fewer requests or streams than these succeeded.
    pub(crate) async fn stop(self, requests: usize, streams: usize) -> Result<()> {
        self.end().await?.check(requests, streams)
    }
}

impl LoadTally {
    /// Checks that nothing failed, and that at least so many requests and streams succeeded.
    pub(crate) fn check(&self, requests: usize, streams: usize) -> Result<()> {
        if self.failed > 0 {
            let sent = self.requests + self.streams + self.failed;
            bail!("{} of {sent} failed:\n    {}", self.failed, self.failures.join("\n    "));
        }
        ensure!(self.requests >= requests && self.streams >= streams, "the load did too little: {self:?}");
        Ok(())
    }

    fn fail(&mut self, failure: String) {
        self.failed += 1;
        self.failures.push(failure);
        self.failures.truncate(KEPT);
    }

    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.streams += other.streams;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.truncate(KEPT);
    }
}

impl Exchange {
    /// Asks the test workload for an answer after 50 ms.
    pub(crate) fn sleep() -> Self {
        Self::Request { method: "GET", path: "/sleep?ms=50".into(), body: String::new(), answer: "slept".into() }
    }
}

impl LoadClient {
    /// Does the same again and again until it is stopped.
    async fn run(self, stopped: watch::Receiver<bool>) -> LoadTally {
        let mut tally = LoadTally::default();
        let mut connection = None;
        while !*stopped.borrow() {
            let ended = match &self.exchange {
                Exchange::Request { method, path, body, answer } => {
                    let ended = send_request(&self.target, &mut connection, [*method, path, body], answer).await;
                    connection = connection.filter(|_| self.keeps_connection);
                    ended
                }
                Exchange::Stream(length) => read_stream(&self.target, *length).await,
            };
            match ended {
                Ok(Some(refused)) if self.retry_on == Some(&*refused.reason) => {
                    connection = None;
                    sleep(refused.after).await;
                    continue;
                }
                Ok(None) => {
                    match self.exchange {
                        Exchange::Request { .. } => tally.requests += 1,
                        Exchange::Stream(_) => tally.streams += 1,
                    }
                    if !self.pause.is_zero() {
                        sleep(self.pause).await;
                    }
                    continue;
                }
                Ok(Some(refused)) => tally.fail(format!("{}: refused: {refused:?}", self.describe())),
                Err(error) => tally.fail(format!("{}: {error:#}", self.describe())),
            }
            connection = None;
            sleep(Duration::from_millis(100)).await;
        }
        tally
    }

    /// Returns the moment, the way and what is done, for a failure.
    fn describe(&self) -> String {
        let ClientTarget { route, prefix, .. } = &self.target;
        let kept = if self.keeps_connection { "a connection that is kept" } else { "a new connection" };
        let what = match &self.exchange {
            Exchange::Request { method, path, .. } => format!("{method} {prefix}{path} on {kept}"),
            Exchange::Stream(length) => format!("a stream of {length:?} from {prefix}"),
        };
        format!("{:.3}, {route}, {what}", Timestamp::now())
    }
}

/// Refused attempt: nothing was done.
#[derive(Debug)]
struct RefusedAttempt {
    reason: String,
    /// Wait before the next attempt.
    after: Duration,
}

/// Sends a short request, of this method, path and body, on the kept connection if there is one.
async fn send_request(
    target: &ClientTarget,
    kept: &mut Option<HttpClientConnection>,
    [method, path, body]: [&str; 3],
    expected: &str,
) -> Result<Option<RefusedAttempt>> {
    let mut connection = match kept.take().filter(HttpClientConnection::is_reusable) {
        Some(connection) => connection,
        None => HttpClientConnection::open(target).await?,
    };
    let answer = connection.send(method, path, body).await?;
    if let Some(refused) = refused_attempt(&answer) {
        return Ok(Some(refused));
    }
    ensure!(answer.status == 200 && answer.text.contains(expected), "{answer:?}");
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
