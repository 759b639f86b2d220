//! Early readiness: reports to gateways that the workload is ready before the kubelet does, whose probes are seconds
//! apart.
//!
//! A gateway probes only while a request waits for a workload without ready Pods. The sidecar probes the workload as
//! the kubelet does. All gateways share one probe at a time
//! ([single-flight](https://pkg.go.dev/golang.org/x/sync/singleflight)) and its cached result: the port is tried often,
//! the readiness path less often.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use super::{
    config::{ProxyConfig, ReadinessProbe},
    upstream::{StartupState, Upstream},
};

/// Time for which the result "accepts no connection" is cached.
const CLOSED_TTL: Duration = Duration::from_millis(25);
/// Time for which any other result is cached.
const NOT_READY_TTL: Duration = Duration::from_millis(100);

/// Early readiness of the workload.
#[derive(Debug)]
pub(super) struct Startup {
    readiness: Option<ReadinessProbe>,
    upstream: Arc<Upstream>,
    /// Last result, and when it expires.
    last: Mutex<Option<(bool, Instant)>>,
}

impl Startup {
    /// Creates the state before the first probe. A Pod that does not know its uid cannot report early readiness.
    pub(super) fn new(config: &ProxyConfig, upstream: Arc<Upstream>) -> Self {
        let readiness = config.readiness.clone().filter(|_| !config.pod_uid.is_empty());
        Self { readiness, upstream, last: Mutex::new(None) }
    }

    /// Reports whether the workload is ready now, or `None` if only the kubelet can tell.
    pub(super) async fn is_ready(&self) -> Option<bool> {
        let readiness = self.readiness.as_ref()?;
        let mut last = self.last.lock().await;
        if let Some((ready, until)) = *last
            && Instant::now() < until
        {
            return Some(ready);
        }
        let started = self.upstream.started(readiness).await;
        let holds = if started == StartupState::Closed { CLOSED_TTL } else { NOT_READY_TTL };
        *last = Some((started == StartupState::Ready, Instant::now() + holds));
        Some(started == StartupState::Ready)
    }
}
