//! Fleet in which nothing changes but the statuses.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actions::ports::{CachedChild, ChildKind, ChildRef, DeploymentState, ReplicasManagers, WorkloadPod};
use async_trait::async_trait;
use crds::Scaling;
use machine::ApiError;
use meta::Key;
use operator::scaler::{
    ModelCounts, ReportedTokens, ScalingStatus, ViewError, WorkloadFleet, WorkloadId, WorkloadView,
};

use crate::pods::{GROUPS, PODS, WORKLOADS, address};

/// Fleet without changes; see the module.
pub(crate) struct IdleFleet(Mutex<HashMap<WorkloadId, WorkloadView>>);

impl IdleFleet {
    /// Creates 1000 workloads of 10 Pods, whose sidecars listen at this port.
    pub(crate) fn new(port: u16) -> Self {
        let groups = (0..GROUPS).flat_map(|group| (0..WORKLOADS).map(move |workload| (group, workload)));
        Self(Mutex::new(groups.map(|(group, workload)| workload_of(group, workload, port)).collect()))
    }

    fn all_of_them(&self) -> MutexGuard<'_, HashMap<WorkloadId, WorkloadView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn workload_of(group: u8, workload: u8, port: u16) -> (WorkloadId, WorkloadView) {
    let name = format!("w-{group}-{workload}");
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

    fn due_budgets(&self, _: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId> {
        Vec::new()
    }

    async fn note_budget(&self, _: &WorkloadId, _: Option<ReportedTokens>) -> Result<(), ApiError> {
        Ok(())
    }
}
