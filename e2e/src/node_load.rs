//! Requests by several clients while a node is lost: each has a connection of its own, and is judged by when it began.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::join_all;
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use crate::{
    client::{ClientTarget, HttpClientConnection},
    env::Env,
};

/// Clients that send one request after another.
const CLIENTS: usize = 4;
/// Time after the first failed connect in which other Pods serve.
const SERVED_WITHIN: Duration = Duration::from_secs(2);
/// Longest request then: a connect that fails after two seconds, the request to another Pod, and the delay of a busy machine.
const LONGEST: Duration = Duration::from_secs(4);

/// Load that runs until it is stopped.
#[derive(Debug)]
pub(crate) struct NodeLoad {
    started: Instant,
    stop: watch::Sender<bool>,
    requests: JoinHandle<Result<Vec<TimedRequest>>>,
}

/// Request, with its times since the start of the load.
#[derive(Debug)]
struct TimedRequest {
    began: Duration,
    ended: Duration,
    /// Failure, or none.
    failure: Option<String>,
}

/// Requests of a load.
#[derive(Debug)]
pub(crate) struct TimedRequests(Vec<TimedRequest>);

impl NodeLoad {
    /// Starts the clients in the network of the first node.
    pub(crate) async fn start(env: &Env, target: &ClientTarget) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (inside, started) = (env.netns().await?, Instant::now());
        let clients: Vec<_> = (0..CLIENTS).map(|_| client(target.clone(), started, stopped.clone())).collect();
        let work = async move { Ok(join_all(clients).await.into_iter().flatten().collect()) };
        Ok(Self { started, stop, requests: tokio::spawn(async move { inside.run(work).await }) })
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Stops the load after the requests in flight have ended.
    pub(crate) async fn stop(self) -> Result<TimedRequests> {
        self.stop.send_replace(true);
        Ok(TimedRequests(self.requests.await??))
    }
}

async fn client(target: ClientTarget, started: Instant, stopped: watch::Receiver<bool>) -> Vec<TimedRequest> {
    let mut requests = Vec::new();
    while !*stopped.borrow() {
        let began = started.elapsed();
        let failure = match HttpClientConnection::request(&target, "GET", "/sleep?ms=20", "").await {
            Ok(answer) if answer.status == 200 => None,
            Ok(answer) => Some(format!("{answer:?}")),
            Err(error) => Some(format!("{error:#}")),
        };
        requests.push(TimedRequest { began, ended: started.elapsed(), failure });
    }
    requests
}

impl TimedRequests {
    /// Checks that soon after this time, at which the first connect had failed, requests were served, and from then on all.
    pub(crate) fn serves_after(&self, failed: Duration) -> Result<()> {
        let served = |it: &&TimedRequest| it.failure.is_none();
        let soon = self.0.iter().filter(served).filter(|it| it.began >= failed && it.ended <= failed + SERVED_WITHIN);
        ensure!(soon.count() > 0, "no request was served within {SERVED_WITHIN:?} of the first failed connect");
        let later: Vec<_> = self.0.iter().filter(|it| it.began >= failed + SERVED_WITHIN).collect();
        ensure!(later.len() > 20, "only {} requests came after that", later.len());
        let wrong: Vec<_> =
            later.iter().filter(|it| it.failure.is_some() || it.ended.saturating_sub(it.began) > LONGEST).collect();
        ensure!(
            wrong.is_empty(),
            "{} of {} requests failed or took long, {SERVED_WITHIN:?} after the first failed connect at {failed:?}: {:?}",
            wrong.len(),
            later.len(),
            &wrong[..wrong.len().min(4)]
        );
        Ok(())
    }
}
