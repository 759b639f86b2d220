//! Asks the Pods of a workload that has none ready whether they can serve, while requests wait for it.
//!
//! The kubelet probes a container seconds after it has started, and its word takes its way through the Pod's status and an
//! EndpointSlice. The sidecar knows it at once. One task per workload asks (single-flight), and only while a request waits: a Pod
//! counts when it answers with its own uid, so an address that has become another Pod's is given nothing.

use std::{sync::Arc, time::Duration};

use crds::READY_PATH;
use futures::{StreamExt as _, stream::FuturesUnordered};
use http1::{ask, question};
use serde::Deserialize;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{endpoints::Endpoint, routes::Route, state::Shared, workload::Flight};

/// Pods that are asked at the same time.
const PODS: usize = 2;
/// The pause between two questions to a Pod, for how long after the first, and after that.
const OFTEN: Duration = Duration::from_millis(25);
const LONG: Duration = Duration::from_secs(10);
const RARELY: Duration = Duration::from_millis(200);
/// How long a connection may take. A SYN that is lost while the Pod's network comes up is sent again after a second, so another
/// attempt is quicker.
const CONNECT: Duration = Duration::from_millis(150);
/// How long an answer may take: the sidecar gives the workload a second.
const PATIENCE: Duration = Duration::from_millis(1500);
/// A Pod that said nothing for so long makes room for another one.
const TURN: Duration = Duration::from_secs(2);
/// Most bytes of an answer.
const ANSWER: usize = 1024;

/// What a sidecar answers when its Pod can serve.
#[derive(Deserialize)]
struct Ready {
    /// The Pod's uid.
    pod: Box<str>,
}

/// Begins to ask on behalf of a request that waits, unless another request has begun to, and tells the scaler. Pods may come later.
pub(super) fn look(route: &Route, key: &[u8], shared: &Arc<Shared>) {
    if let Some(flight) = is_cold(route).then(|| route.workload.fly()).flatten() {
        shared.cold.send_modify(|times| *times += 1);
        tokio::spawn(fly(flight, key.into(), shared.clone()));
    }
}

fn is_cold(route: &Route) -> bool {
    route.object.sidecar && route.pods.is_empty()
}

/// Asks until a Pod is ready or nobody waits.
async fn fly(flight: Flight, key: Box<[u8]>, shared: Arc<Shared>) {
    let question = question(READY_PATH, &[("X-Recif-Workload", &flight.workload().named)]);
    let mut asked: Vec<Endpoint> = Vec::new();
    let mut mute: Vec<Endpoint> = Vec::new();
    let mut lines = FuturesUnordered::new();
    while flight.workload().is_waited_for()
        && let Some(route) = shared.routes.find(&key).filter(|route| is_cold(route))
    {
        asked.retain(|endpoint| route.unready.contains(endpoint));
        mute.retain(|endpoint| route.unready.contains(endpoint));
        if asked.len() < PODS
            && route.unready.iter().all(|endpoint| asked.contains(endpoint) || mute.contains(endpoint))
        {
            mute.clear();
        }
        for endpoint in route.unready.iter() {
            if asked.len() < PODS && !asked.contains(endpoint) && !mute.contains(endpoint) {
                asked.push(endpoint.clone());
                lines.push(Line::new(endpoint.clone()).next(&question, Duration::ZERO));
            }
        }
        tokio::select! {
            Some((line, said)) = lines.next(), if !lines.is_empty() => {
                if said == Said::Ready {
                    tracing::debug!(workload = %flight.workload().named, pod = %line.endpoint.uid, "ready, by its own word");
                    shared.routes.early(flight.workload(), &line.endpoint.uid);
                }
                if !asked.contains(&line.endpoint) {
                    continue;
                }
                if said == Said::Nothing && line.begun.elapsed() > TURN && route.unready.len() > asked.len() {
                    asked.retain(|endpoint| *endpoint != line.endpoint);
                    mute.push(line.endpoint);
                } else {
                    let pause = if line.begun.elapsed() < LONG { OFTEN } else { RARELY };
                    lines.push(line.next(&question, pause));
                }
            }
            () = sleep(OFTEN) => {}
        }
    }
}

/// What came of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The Pod can serve, and is the one that was meant.
    Ready,
    /// It cannot, yet.
    NotReady,
    /// Nobody answered, or somebody who cannot tell.
    Nothing,
}

/// A Pod that is asked, and the connection to it.
struct Line {
    endpoint: Endpoint,
    begun: Instant,
    kept: Option<TcpStream>,
}

impl Line {
    fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, begun: Instant::now(), kept: None }
    }

    /// Asks after a pause.
    async fn next(mut self, question: &[u8], pause: Duration) -> (Self, Said) {
        sleep(pause).await;
        if self.kept.is_none() {
            self.kept = timeout(CONNECT, TcpStream::connect(self.endpoint.address)).await.ok().and_then(Result::ok);
        }
        let Some(kept) = self.kept.take() else { return (self, Said::Nothing) };
        let asked = ask(self.endpoint.address, Some(kept), question, ANSWER);
        let Ok(Ok(reply)) = timeout(PATIENCE, asked).await else { return (self, Said::Nothing) };
        self.kept = reply.connection;
        let is_it = |ready: Ready| ready.pod == self.endpoint.uid;
        let said = match reply.status {
            200 if serde_json::from_slice(&reply.body).is_ok_and(is_it) => Said::Ready,
            503 => Said::NotReady,
            _ => Said::Nothing,
        };
        (self, said)
    }
}
