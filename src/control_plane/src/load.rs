//! How busy workloads are: their sidecars are asked, at most once a second for each workload.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use crds::PROXY_PORT;
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout},
};

use super::{
    api::types::{Load, PodLoad},
    around::PodSeen,
};

/// How long an answer serves.
const FRESH: Duration = Duration::from_secs(1);
/// How long a Pod may take to answer.
const PATIENCE: Duration = Duration::from_millis(800);
/// Pods of one workload that are asked at a time.
const AT_A_TIME: usize = 16;
/// The longest answer of a sidecar, in bytes.
const LONGEST: usize = 64 * 1024;

/// What sidecars answered last.
#[derive(Debug)]
pub(super) struct Loads {
    client: Client<HttpConnector, Empty<Bytes>>,
    port: u16,
    /// By the workload's uid.
    known: Mutex<HashMap<Box<str>, (Instant, Look)>>,
}

/// A look at the Pods of one workload, once it is done.
type Look = Arc<OnceCell<Arc<Load>>>;

/// What a sidecar says.
#[derive(Deserialize)]
struct Report {
    inflight: u64,
    #[serde(default)]
    concurrency: u64,
}

impl Loads {
    /// Asks the sidecars where they listen.
    pub(super) fn new() -> Self {
        Self::at(u16::try_from(PROXY_PORT).unwrap_or_default())
    }

    /// Asks at this port.
    pub(super) fn at(port: u16) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(PATIENCE));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(5))
            .pool_max_idle_per_host(1)
            .build(connector);
        Self { client, port, known: Mutex::default() }
    }

    /// How busy the workload of this uid is, whose Pods these are. Callers who ask at once share one look.
    pub(super) async fn of(&self, uid: &str, pods: Vec<Arc<PodSeen>>) -> Arc<Load> {
        let cell = {
            let now = Instant::now();
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, (asked, _)| now - *asked < FRESH);
            let (_, cell) = known.entry(uid.into()).or_insert_with(|| (now, Arc::default()));
            cell.clone()
        };
        cell.get_or_init(|| self.ask(pods)).await.clone()
    }

    async fn ask(&self, pods: Vec<Arc<PodSeen>>) -> Arc<Load> {
        let at = Timestamp::now().to_string();
        let asked = pods.iter().filter_map(|pod| Some((pod.name.to_string(), pod.ip?)));
        let answers = stream::iter(asked.collect::<Vec<_>>()).map(|(name, ip)| self.pod(name, ip));
        let answers: Vec<_> = answers.buffer_unordered(AT_A_TIME).collect().await;
        let asked = answers.len();
        let mut pods: Vec<PodLoad> = answers.into_iter().flatten().collect();
        pods.sort_by(|one, other| one.name.cmp(&other.name));
        let in_flight = pods.iter().map(|pod| pod.in_flight).sum();
        Arc::new(Load { at, in_flight, silent: asked - pods.len(), pods })
    }

    async fn pod(&self, name: String, ip: IpAddr) -> Option<PodLoad> {
        let uri = format!("http://{}/_recif/inflight", SocketAddr::new(ip, self.port)).parse().ok()?;
        let exchange = async {
            let answer = self.client.get(uri).await.ok()?;
            let ok = answer.status().is_success();
            let body = Limited::new(answer.into_body(), LONGEST).collect().await.ok()?.to_bytes();
            serde_json::from_slice::<Report>(&body).ok().filter(|_| ok)
        };
        let Report { inflight, concurrency } = timeout(PATIENCE, exchange).await.ok()??;
        Some(PodLoad { name, in_flight: inflight, concurrency })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::{Router, routing::get};
    use cluster::Head;
    use tokio::net::TcpListener;

    use super::*;
    use crate::around;

    fn pod(name: &str, ip: &str) -> Arc<PodSeen> {
        let head = Head { key: meta::Key::new("ns", name), uid: name.into(), version: 1 };
        let json = serde_json::json!({ "metadata": { "name": name }, "status": { "podIP": ip } });
        Arc::new(around::pod(&head, &json.to_string()).unwrap())
    }

    #[tokio::test]
    async fn pods_are_asked_once_however_many_want_to_know() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = get(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { r#"{"inflight":3,"concurrency":8,"more":1}"# }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            axum::serve(listener, Router::new().route("/_recif/inflight", answer)).await.unwrap();
        });
        let loads = Loads::at(port);
        // Nobody listens at the second one's address.
        let pods = || vec![pod("a", "127.0.0.1"), pod("b", "127.0.0.2"), pod("without-address", "")];
        let (one, other) = futures::join!(loads.of("u", pods()), loads.of("u", pods()));
        assert_eq!((one.in_flight, one.silent, one.pods.len()), (3, 1, 1));
        assert_eq!((other.pods[0].name.as_str(), other.pods[0].concurrency), ("a", 8));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        server.abort();
    }
}
