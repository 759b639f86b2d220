//! Tells a gateway that the workload is ready before the kubelet does, whose probes come seconds apart.
//!
//! A gateway asks for as long as a request waits for a workload without ready Pods, and only then. The workload is asked as the
//! kubelet asks it, by a single flight that all gateways share: its port often, its readiness path less often.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use super::{
    config::{ProxyConfig, ReadinessProbe},
    upstream::{StartupState, Upstream},
};

/// How long the workload is left alone after it accepted no connection, and after it said that it is not ready.
const CLOSED_TTL: Duration = Duration::from_millis(25);
const NOT_READY_TTL: Duration = Duration::from_millis(100);

/// What is known of the workload's start.
#[derive(Debug)]
pub(super) struct Startup {
    readiness: Option<ReadinessProbe>,
    upstream: Arc<Upstream>,
    /// The last answer, and until when it holds.
    last: Mutex<Option<(bool, Instant)>>,
}

impl Startup {
    /// Nobody has asked yet. A Pod that does not know its uid cannot answer.
    pub(super) fn new(config: &ProxyConfig, upstream: Arc<Upstream>) -> Self {
        let readiness = config.readiness.clone().filter(|_| !config.pod_uid.is_empty());
        Self { readiness, upstream, last: Mutex::new(None) }
    }

    /// Whether the workload is ready now; `None`: only the kubelet can tell.
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
