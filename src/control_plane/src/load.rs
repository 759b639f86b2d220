//! Load of workloads, queried from their sidecars at most once a second for each workload.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use http1::{get_request, query};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout},
};

use super::{
    api::types::{Load, PodLoad},
    related::PodRecord,
};

/// Time for which a response is reused.
const TTL: Duration = Duration::from_secs(1);
/// Timeout of one Pod's response.
const TIMEOUT: Duration = Duration::from_millis(800);
/// Pods of one workload that are queried at the same time.
const CONCURRENT_QUERIES: usize = 16;
/// Limit of a sidecar's response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Cache of the sidecars' last responses, with [single-flight](https://pkg.go.dev/golang.org/x/sync/singleflight): callers within
/// [`TTL`] of the start of a workload's query share it.
///
/// Invariant: a workload has at most one entry, which is replaced once it is older than [`TTL`].
#[derive(Debug)]
pub(super) struct LoadCache {
    /// By the workload's uid: time of the query, and its result.
    entries: Mutex<HashMap<Box<str>, (Instant, PendingLoad)>>,
}

/// Query of the Pods of one workload; empty while it runs.
type PendingLoad = Arc<OnceCell<Arc<Load>>>;

/// Response of a sidecar.
#[derive(Deserialize)]
struct SidecarLoad {
    inflight: u64,
    #[serde(default)]
    concurrency: u64,
}

impl LoadCache {
    /// Creates an empty cache.
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default() }
    }

    /// Returns the load of the workload with this uid and these Pods, from a query that callers within [`TTL`] share.
    pub(super) async fn get(&self, uid: &str, pods: Vec<Arc<PodRecord>>) -> Arc<Load> {
        let cell = {
            let now = Instant::now();
            let mut known = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, (asked, _)| now - *asked < TTL);
            let (_, cell) = known.entry(uid.into()).or_insert_with(|| (now, Arc::default()));
            cell.clone()
        };
        cell.get_or_init(|| query_sidecars(pods)).await.clone()
    }
}

async fn query_sidecars(pods: Vec<Arc<PodRecord>>) -> Arc<Load> {
    let at = Timestamp::now().to_string();
    let asked = pods.iter().filter_map(|pod| Some((pod.name.to_string(), SocketAddr::new(pod.ip?, pod.port))));
    let answers = stream::iter(asked.collect::<Vec<_>>()).map(|(name, sidecar)| query_pod(name, sidecar));
    let answers: Vec<_> = answers.buffer_unordered(CONCURRENT_QUERIES).collect().await;
    let asked = answers.len();
    let mut pods: Vec<PodLoad> = answers.into_iter().flatten().collect();
    pods.sort_by(|one, other| one.name.cmp(&other.name));
    let in_flight = pods.iter().map(|pod| pod.in_flight).sum();
    Arc::new(Load { at, in_flight, silent: asked - pods.len(), pods })
}

/// Returns the load of a Pod; `None` if its sidecar does not give it in time.
async fn query_pod(name: String, sidecar: SocketAddr) -> Option<PodLoad> {
    // A Pod is asked at most once a second, so no connection is kept.
    let request = get_request("/_recif/inflight", &[("Connection", "close")]);
    let answer = timeout(TIMEOUT, query(sidecar, None, &request, MAX_RESPONSE_BYTES)).await.ok()?.ok()?;
    let body = (200..300).contains(&answer.status).then_some(answer.body)?;
    let SidecarLoad { inflight, concurrency } = serde_json::from_slice(&body).ok()?;
    Some(PodLoad { name, in_flight: inflight, concurrency })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::{
        Router,
        http::StatusCode,
        routing::{MethodRouter, get},
    };
    use cluster::ObjectVersion;
    use tokio::net::TcpListener;

    use super::*;
    use crate::related;

    fn pod(name: &str, ip: &str, port: u16) -> Arc<PodRecord> {
        let head = ObjectVersion { key: meta::Key::new("ns", name), uid: name.into(), resource_version: 1 };
        let sidecar = serde_json::json!({ "name": "proxy", "ports": [{ "name": "http", "containerPort": port }] });
        let spec = serde_json::json!({ "hostNetwork": true, "containers": [], "initContainers": [sidecar] });
        let json = serde_json::json!({ "metadata": { "name": name }, "spec": spec, "status": { "podIP": ip } });
        Arc::new(related::pod(&head, &json.to_string()).unwrap())
    }

    /// Serves a sidecar that answers in this way, and returns its port.
    async fn sidecar(answer: MethodRouter) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().route("/_recif/inflight", answer);
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        port
    }

    #[tokio::test]
    async fn pods_are_asked_once_however_many_want_to_know() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = get(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { r#"{"inflight":3,"concurrency":8,"more":1}"# }
        });
        let port = sidecar(answer).await;
        let loads = LoadCache::new();
        // Nothing listens at the second Pod's port of the same address.
        let pods = || vec![pod("a", "127.0.0.1", port), pod("b", "127.0.0.1", 1), pod("without-address", "", port)];
        let (one, other) = futures::join!(loads.get("u", pods()), loads.get("u", pods()));
        assert_eq!((one.in_flight, one.silent, one.pods.len()), (3, 1, 1));
        assert_eq!((other.pods[0].name.as_str(), other.pods[0].concurrency), ("a", 8));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_pod_that_fails_says_too_much_or_hangs_is_silent() {
        let answering = sidecar(get(|| async { r#"{"inflight":2}"# })).await;
        let failing = sidecar(get(|| async { (StatusCode::INTERNAL_SERVER_ERROR, r#"{"inflight":3}"#) })).await;
        // Blanks after JSON are JSON: the length alone is wrong.
        let endless = || async { r#"{"inflight":4}"#.to_owned() + &" ".repeat(MAX_RESPONSE_BYTES) };
        let endless = sidecar(get(endless)).await;
        let hanging = sidecar(get(std::future::pending::<&'static str>)).await;
        let pods = [("a", answering), ("b", failing), ("c", endless), ("d", hanging)];
        let pods = pods.map(|(name, port)| pod(name, "127.0.0.1", port));
        let load = LoadCache::new().get("u", pods.into()).await;
        assert_eq!((load.in_flight, load.silent, load.pods.len()), (2, 3, 1));
        assert_eq!(load.pods[0].name, "a");
    }
}
