//! What the scaler asks of the cluster, and what it tells it.

use std::{net::SocketAddr, sync::Arc};

use actions::ports::{CachedChild, WorkloadPod};
use async_trait::async_trait;
use crds::Scaling;
use machine::ApiError;
use meta::Key;

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadId {
    /// Its kind, such as `Agent`.
    pub kind: &'static str,
    /// Its namespace and name.
    pub key: Key,
}

/// A workload as the caches have it.
#[derive(Debug, Clone)]
pub struct WorkloadView {
    /// Its uid.
    pub uid: String,
    /// How the number of its Pods is to follow the load; `None`: it is not.
    pub scaling: Option<Scaling>,
    /// Whether the user stopped it.
    pub stopped: bool,
    /// Whether it is Failed for a reason that a ready Pod ends.
    pub failed: bool,
    /// Its Deployment.
    pub deployment: Option<Arc<CachedChild>>,
    /// Its Pods.
    pub pods: Vec<Arc<WorkloadPod>>,
    /// A Tool that refers to it, if one does.
    pub tool: Option<String>,
    /// What its status says about scaling.
    pub status: ScalingStatus,
}

/// Why nothing can be decided for a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewError {
    /// It is gone, or nothing scales it.
    Gone,
    /// Its Deployment or its Pods were never listed, which is not the same as none.
    NotListed,
}

/// What the status of a workload says about scaling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScalingStatus {
    /// `desiredReplicas`.
    pub desired: Option<i32>,
    /// The condition `ScalingActive`.
    pub active: Option<ScalingCondition>,
}

/// The condition `ScalingActive`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalingCondition {
    /// Whether the number of Pods follows the load.
    pub status: bool,
    /// A CamelCase word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// The way to the cluster. Reading is from caches, writing is one request each and bound to a uid.
#[async_trait]
pub trait WorkloadFleet: Send + Sync {
    /// Every workload that concerns the scaler.
    fn all(&self) -> Vec<WorkloadId>;

    /// Waits until the spec or the Deployment of workloads changes, or one comes or goes: which.
    async fn changed(&self) -> Vec<WorkloadId>;

    /// A workload.
    ///
    /// # Errors
    /// When it is gone or not scaled, or when not all of it is known.
    fn view(&self, id: &WorkloadId) -> Result<WorkloadView, ViewError>;

    /// Where the gateways tell what they cannot serve.
    fn gateways(&self) -> Vec<SocketAddr>;

    /// Sets the Deployment's `replicas`, or (`None`) leaves it to whoever else has set it.
    ///
    /// # Errors
    /// As the API server answered.
    async fn set_replicas(&self, deployment: &CachedChild, replicas: Option<i32>) -> Result<(), ApiError>;

    /// Sets what it costs to delete a Pod, or (`None`) takes that back.
    ///
    /// # Errors
    /// As the API server answered.
    async fn set_deletion_cost(&self, namespace: &str, pod: &WorkloadPod, cost: Option<i32>) -> Result<(), ApiError>;

    /// Writes what the status is to say.
    ///
    /// # Errors
    /// As the API server answered.
    async fn write_status(&self, id: &WorkloadId, uid: &str, told: &ScalingStatus) -> Result<(), ApiError>;
}
