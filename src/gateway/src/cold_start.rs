//! Cold start: probes the Pods of a workload that has no ready one, while requests wait for it.
//!
//! The kubelet probes a container seconds after it has started, and the result takes its way through the Pod's status
//! and an EndpointSlice. The sidecar knows it at once. One task per workload probes
//! ([single-flight](https://pkg.go.dev/golang.org/x/sync/singleflight)), and only while a request waits. A Pod counts
//! as ready if it responds with its own uid, so no request goes to an address that now belongs to another Pod. The same
//! moment wakes the scaler's long poll.

use std::{sync::Arc, time::Duration};

use crds::READY_PATH;
use futures::{StreamExt as _, stream::FuturesUnordered};
use http1::{get_request, query};
use serde::Deserialize;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{endpoints::PodEndpoint, routes::Route, state::GatewayContext, workload::ProbePermit};

/// Most Pods that are probed at the same time.
const MAX_PROBED_PODS: usize = 2;
/// Pause between two probes of a Pod during [`SHORT_INTERVAL_PERIOD`].
const SHORT_INTERVAL: Duration = Duration::from_millis(25);
/// Time from the first probe of a Pod during which it is probed every [`SHORT_INTERVAL`].
const SHORT_INTERVAL_PERIOD: Duration = Duration::from_secs(10);
/// Pause between two probes of a Pod after [`SHORT_INTERVAL_PERIOD`].
const LONG_INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for a connection. A SYN that is lost while the Pod's network comes up is retransmitted after one
/// second, so another attempt is quicker.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(150);
/// Longest wait for a response: the sidecar gives the workload one second.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time without a usable response after which another Pod is probed instead.
const SILENT_POD_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of a response.
const MAX_RESPONSE: usize = 1024;

/// Response body of a sidecar whose Pod is ready.
#[derive(Deserialize)]
struct ReadyBody {
    /// Uid of the Pod.
    pod: Box<str>,
}

/// Starts the probe task on behalf of a waiting request, unless it already runs, and notifies the scaler. The workload
/// need not have Pods yet.
pub(super) fn start_probing(route: &Route, key: &[u8], shared: &Arc<GatewayContext>) {
    if let Some(flight) = is_cold(route).then(|| route.workload.begin_probe()).flatten() {
        shared.cold_starts.send_modify(|times| *times += 1);
        tokio::spawn(probe_until_ready(flight, key.into(), shared.clone()));
    }
}

fn is_cold(route: &Route) -> bool {
    route.object.sidecar && route.pods.is_empty()
}

/// Probes until a Pod is ready or no request waits any more.
async fn probe_until_ready(flight: ProbePermit, key: Box<[u8]>, shared: Arc<GatewayContext>) {
    let question = get_request(READY_PATH, &[("X-Recif-Workload", &flight.workload().full_name)]);
    let mut asked: Vec<PodEndpoint> = Vec::new();
    let mut mute: Vec<PodEndpoint> = Vec::new();
    let mut lines = FuturesUnordered::new();
    while flight.workload().slots.has_waiters()
        && let Some(route) = shared.routes.find(&key).filter(|route| is_cold(route))
    {
        asked.retain(|endpoint| route.unready.contains(endpoint));
        mute.retain(|endpoint| route.unready.contains(endpoint));
        if asked.len() < MAX_PROBED_PODS
            && route.unready.iter().all(|endpoint| asked.contains(endpoint) || mute.contains(endpoint))
        {
            mute.clear();
        }
        for endpoint in route.unready.iter() {
            if asked.len() < MAX_PROBED_PODS && !asked.contains(endpoint) && !mute.contains(endpoint) {
                asked.push(endpoint.clone());
                lines.push(PodProbe::new(endpoint.clone()).probe_after(&question, Duration::ZERO));
            }
        }
        tokio::select! {
            Some((line, result)) = lines.next(), if !lines.is_empty() => {
                if result == ProbeResult::Ready {
                    tracing::debug!(workload = %flight.workload().full_name, pod = %line.endpoint.uid, "ready, by its own word");
                    shared.routes.mark_self_reported(flight.workload(), &line.endpoint.uid);
                }
                if !asked.contains(&line.endpoint) {
                    continue;
                }
                if result == ProbeResult::Unknown && line.started.elapsed() > SILENT_POD_TIMEOUT && route.unready.len() > asked.len() {
                    asked.retain(|endpoint| *endpoint != line.endpoint);
                    mute.push(line.endpoint);
                } else {
                    let pause = if line.started.elapsed() < SHORT_INTERVAL_PERIOD { SHORT_INTERVAL } else { LONG_INTERVAL };
                    lines.push(line.probe_after(&question, pause));
                }
            }
            () = sleep(SHORT_INTERVAL) => {}
        }
    }
}

/// Result of one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeResult {
    /// The Pod is ready, and its uid is the expected one.
    Ready,
    /// The Pod is not ready yet.
    NotReady,
    /// No response, or one that does not tell.
    Unknown,
}

/// Pod that is probed, and the connection to it.
struct PodProbe {
    endpoint: PodEndpoint,
    started: Instant,
    connection: Option<TcpStream>,
}

impl PodProbe {
    fn new(endpoint: PodEndpoint) -> Self {
        Self { endpoint, started: Instant::now(), connection: None }
    }

    /// Sends one probe after a pause.
    async fn probe_after(mut self, question: &[u8], pause: Duration) -> (Self, ProbeResult) {
        sleep(pause).await;
        if self.connection.is_none() {
            self.connection =
                timeout(CONNECT_TIMEOUT, TcpStream::connect(self.endpoint.address)).await.ok().and_then(Result::ok);
        }
        let Some(kept) = self.connection.take() else { return (self, ProbeResult::Unknown) };
        let asked = query(self.endpoint.address, Some(kept), question, MAX_RESPONSE);
        let Ok(Ok(reply)) = timeout(RESPONSE_TIMEOUT, asked).await else { return (self, ProbeResult::Unknown) };
        self.connection = reply.connection;
        let is_it = |ready: ReadyBody| ready.pod == self.endpoint.uid;
        let result = match reply.status {
            200 if serde_json::from_slice(&reply.body).is_ok_and(is_it) => ProbeResult::Ready,
            503 => ProbeResult::NotReady,
            _ => ProbeResult::Unknown,
        };
        (self, result)
    }
}
