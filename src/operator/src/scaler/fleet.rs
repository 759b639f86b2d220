//! Port of the scaler to the cluster.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use actions::ports::{CachedChild, WorkloadPod};
use async_trait::async_trait;
use crds::{Scaling, pending_calls::PendingCalls};
use machine::ApiError;

use super::{budget::ReportedTokens, gateways::ModelCounts};

pub use super::{
    status::{ScalingCondition, ScalingStatus},
    workload_id::WorkloadId,
};

/// Workload as the caches hold it.
#[derive(Debug, Clone)]
pub struct WorkloadView {
    /// Its uid.
    pub uid: String,
    /// Settings by which the number of its Pods follows the load; `None`: it does not.
    pub scaling: Option<Scaling>,
    /// True if the user stopped it.
    pub stopped: bool,
    /// True if it is Failed for a reason that a ready Pod ends.
    pub failed: bool,
    /// Its Deployment.
    pub deployment: Option<Arc<CachedChild>>,
    /// Its Pods.
    pub pods: Vec<Arc<WorkloadPod>>,
    /// Tool that refers to it, if one does.
    pub tool: Option<String>,
    /// Scaling part of its status.
    pub status: ScalingStatus,
}

/// Reason why nothing can be decided for a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewError {
    /// It is gone, or no scaler manages it.
    Gone,
    /// Its Deployment or its Pods were never listed, which is not the same as none.
    NotListed,
}

/// Port to the cluster. Reads come from caches; each write is one request and bound to a uid.
#[async_trait]
pub trait WorkloadFleet: Send + Sync {
    /// Returns every workload that concerns the scaler.
    fn all(&self) -> Vec<WorkloadId>;

    /// Waits until workloads come, go, or change in their spec or Deployment, and returns them.
    async fn changed(&self) -> Vec<WorkloadId>;

    /// Returns a workload.
    ///
    /// # Errors
    /// [`ViewError`]: it is gone or not scaled, or not all of it is known.
    fn view(&self, id: &WorkloadId) -> Result<WorkloadView, ViewError>;

    /// Returns the addresses at which the gateways report the demand that they cannot serve.
    fn gateways(&self) -> Vec<SocketAddr>;

    /// Sets the Deployment's `replicas`, or (`None`) leaves it to another field manager that has set it.
    ///
    /// # Errors
    /// The failure of the request, classified.
    async fn set_replicas(&self, deployment: &CachedChild, replicas: Option<i32>) -> Result<(), ApiError>;

    /// Sets the deletion cost of a Pod, or (`None`) removes it.
    ///
    /// # Errors
    /// The failure of the request, classified.
    async fn set_deletion_cost(&self, namespace: &str, pod: &WorkloadPod, cost: Option<i32>) -> Result<(), ApiError>;

    /// Writes the scaling part of the status.
    ///
    /// # Errors
    /// The failure of the request, classified.
    async fn write_status(&self, id: &WorkloadId, uid: &str, status: &ScalingStatus) -> Result<(), ApiError>;

    /// Writes into the status of an agent whether another model answers for its own, by the responses of the last minute.
    ///
    /// # Errors
    /// The failure of the request, classified.
    async fn note_models(&self, id: &WorkloadId, answered: &ModelCounts) -> Result<(), ApiError>;

    /// Reports whether [`Self::note_pending`] would write. A fleet that does not know lets it be tried.
    fn is_pending_due(&self, _: &WorkloadId, _: &PendingCalls) -> bool {
        true
    }

    /// Writes into the status of an agent whether calls of its tools wait for a person.
    ///
    /// # Errors
    /// The failure of the request, classified.
    async fn note_pending(&self, id: &WorkloadId, pending: &PendingCalls) -> Result<(), ApiError>;

    /// Returns the workloads whose status does not say whether their budget of tokens is spent, as these reports have it.
    fn due_budgets(&self, reported: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId>;

    /// Writes into the status of a workload whether its budget of tokens is spent, by this report.
    ///
    /// # Errors
    /// The failure of the request, classified.
    async fn note_budget(&self, id: &WorkloadId, reported: Option<ReportedTokens>) -> Result<(), ApiError>;
}
