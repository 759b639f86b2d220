//! Scaler: sets the number of Pods of a workload by the load that its Pods and the gateways report.
//!
//! Deciding is a pure function of samples and the time: `demand` turns samples into a load, `decide` turns the load into a number of Pods
//! (with hysteresis and scale to zero), `step` selects the Pods of a scale-down, and `tracked` holds the state of one workload. `run`
//! queries and writes, through a [`WorkloadFleet`], which `live` implements by the caches and the API. `cold` sends long polls to the
//! gateways, so that a workload without Pods is evaluated as soon as a request waits for it.

mod budget;
mod changed_workloads;
mod cold;
mod cost;
mod decide;
mod demand;
mod fallback;
mod fleet;
mod gateways;
mod kind_fleet;
mod live;
mod metrics;
mod pending;
mod run;
mod status;
mod step;
#[cfg(test)]
mod testing;
mod tracked;
mod unreported;
mod workload_id;

pub use budget::ReportedTokens;
pub use decide::{Decision, Direction, ReplicaPolicy, Window, decide};
pub use demand::{LoadDemand, LoadReport, Meter, PodSample};
pub use fleet::{ScalingCondition, ScalingStatus, ViewError, WorkloadFleet, WorkloadId, WorkloadView};
pub use gateways::ModelCounts;
pub use live::{GatewayMap, LiveFleet};
pub use metrics::{ScaleGauges, ScalerMetrics};
pub use run::Scaler;
pub use unreported::ReportingState;
