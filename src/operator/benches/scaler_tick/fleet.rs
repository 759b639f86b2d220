//! Fleet in which nothing changes but the statuses.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actions::ports::{CacheReader, CachedChild, ChildKind, ChildRef, DeploymentState, ReplicasManagers, WorkloadPod};
use async_trait::async_trait;
use cluster::{
    ChangeSource, ObjectVersion, Transport, Versioned, WatchHealth, WriteGate,
    cache::{Caches, InformerReader},
    crash::CrashPoint,
    metrics::ApiMetrics,
};
use crds::{Agent, Scaling, pending_calls::PendingCalls};
use http::{Request, Response};
use kube::client::Body;
use machine::{ApiError, Clock, SystemClock};
use meta::Key;
use operator::scaler::{
    LiveFleet, ModelCounts, ReportedTokens, ScalingStatus, ViewError, WorkloadFleet, WorkloadId, WorkloadView,
};
use serde_json::json;

use crate::pods::{GROUPS, PODS, WORKLOADS, address};

/// Fleet without changes; see the module.
pub(crate) struct IdleFleet {
    views: Mutex<HashMap<WorkloadId, WorkloadView>>,
    /// The same workloads in caches, by which their budgets are looked at.
    live: LiveFleet,
}

impl IdleFleet {
    /// Creates 1000 workloads of 10 Pods, whose sidecars listen at this port. Must be called within a runtime.
    pub(crate) fn new(port: u16) -> io::Result<Self> {
        let views = workloads().map(|(group, workload)| workload_of(group, workload, port)).collect();
        Ok(Self { views: Mutex::new(views), live: live_fleet()? })
    }

    fn all_of_them(&self) -> MutexGuard<'_, HashMap<WorkloadId, WorkloadView>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn workloads() -> impl Iterator<Item = (u8, u8)> {
    (0..GROUPS).flat_map(|group| (0..WORKLOADS).map(move |workload| (group, workload)))
}

fn name_of(group: u8, workload: u8) -> String {
    format!("w-{group}-{workload}")
}

/// Returns the workloads in caches. One of ten has a budget of tokens, of which nothing is spent.
fn live_fleet() -> io::Result<LiveFleet> {
    let maps = Caches::default();
    for (group, workload) in workloads() {
        let name = name_of(group, workload);
        let budget = workload.is_multiple_of(10).then(|| json!({"per": "workload", "tokensPerDay": 1_000_000}));
        let limits: Vec<_> = budget.into_iter().collect();
        let agent: Agent = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"name": name, "framework": "corail", "limits": limits},
            "status": {"phase": "Running"},
        }))?;
        let version = ObjectVersion { key: Key::new("ns", name.as_str()), uid: name, resource_version: 1 };
        maps.kinds.of::<Agent>().observe(Versioned::new(version, agent), ChangeSource::Watch);
    }
    let service = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(io::Error::other("there is no API server"))
    });
    let client = kube::Client::new(service, "default");
    let transport = Transport::new(client, || None, WriteGate::always(), CrashPoint::default(), ApiMetrics::default());
    let board = Arc::new(WatchHealth::default());
    let caches: Arc<dyn CacheReader> = Arc::new(InformerReader::new(&maps, board.clone()));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    Ok(LiveFleet::new(&Arc::new(transport), &maps, &caches, &clock, Arc::default(), board))
}

fn workload_of(group: u8, workload: u8, port: u16) -> (WorkloadId, WorkloadView) {
    let name = name_of(group, workload);
    let pods = (0..PODS).map(|at| {
        let name = format!("{name}-{at}");
        Arc::new(WorkloadPod {
            uid: name.clone(),
            name,
            resource_version: 1,
            labels: Default::default(),
            ready: true,
            terminating: false,
            ip: Some(address(group, workload, at).into()),
            port,
            deletion_cost: None,
            problem: None,
        })
    });
    let pods: Vec<_> = pods.collect();
    let count = i32::from(PODS);
    let deployment = CachedChild {
        child: ChildRef { kind: ChildKind::Deployment, namespace: "ns".into(), name: name.clone() },
        uid: name.clone(),
        resource_version: 1,
        generation: 1,
        labels: Default::default(),
        controller: None,
        owned: None,
        deleting: false,
        data: Default::default(),
        definitions: None,
        deployment: Some(DeploymentState {
            observed_generation: 1,
            desired: count,
            replicas: count,
            updated: count,
            ready: count,
            available: count,
            replicas_managers: ReplicasManagers { scaler: true, ..ReplicasManagers::default() },
            ..DeploymentState::default()
        }),
    };
    let scaling = Scaling { min_replicas: count, max_replicas: count, ..Scaling::default() };
    let seen = WorkloadView {
        uid: name.clone(),
        scaling: Some(scaling),
        stopped: false,
        failed: false,
        deployment: Some(Arc::new(deployment)),
        pods,
        tool: None,
        status: ScalingStatus::default(),
    };
    (WorkloadId { kind: "Agent", key: Key::new("ns", name) }, seen)
}

#[async_trait]
impl WorkloadFleet for IdleFleet {
    fn all(&self) -> Vec<WorkloadId> {
        self.all_of_them().keys().cloned().collect()
    }

    async fn changed(&self) -> Vec<WorkloadId> {
        std::future::pending().await
    }

    fn view(&self, id: &WorkloadId) -> Result<WorkloadView, ViewError> {
        self.all_of_them().get(id).cloned().ok_or(ViewError::Gone)
    }

    fn gateways(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    async fn set_replicas(&self, _: &CachedChild, _: Option<i32>) -> Result<(), ApiError> {
        Ok(())
    }

    async fn set_deletion_cost(&self, _: &str, _: &WorkloadPod, _: Option<i32>) -> Result<(), ApiError> {
        Ok(())
    }

    async fn write_status(&self, id: &WorkloadId, _: &str, status: &ScalingStatus) -> Result<(), ApiError> {
        if let Some(seen) = self.all_of_them().get_mut(id) {
            seen.status = status.clone();
        }
        Ok(())
    }

    async fn note_models(&self, _: &WorkloadId, _: &ModelCounts) -> Result<(), ApiError> {
        Ok(())
    }

    async fn note_pending(&self, _: &WorkloadId, _: &PendingCalls) -> Result<(), ApiError> {
        Ok(())
    }

    fn due_budgets(&self, reported: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId> {
        self.live.due_budgets(reported)
    }

    async fn note_budget(&self, _: &WorkloadId, _: Option<ReportedTokens>) -> Result<(), ApiError> {
        Ok(())
    }
}
