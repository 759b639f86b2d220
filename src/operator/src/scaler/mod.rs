//! How many Pods a workload needs, from what its Pods and the gateways say.
//!
//! Deciding is a pure function of samples and the time: `demand` turns what was heard into a load, `decide` turns the load
//! into a number of Pods, `step` says who goes, and `tracked` holds what is remembered of one workload. `run` asks and
//! writes, through a [`WorkloadFleet`], which `live` makes of the caches and the API; `cold` polls the gateways (long polling), so
//! that a workload without Pods is judged as soon as a request waits for it.

mod cold;
mod decide;
mod demand;
mod fleet;
mod gateways;
mod live;
mod metrics;
mod run;
mod status;
mod step;
#[cfg(test)]
mod testing;
mod tracked;

pub use decide::{Decision, Direction, ReplicaPolicy, Window, decide};
pub use demand::{LoadDemand, LoadReport, Meter, PodSample};
pub use fleet::{ScalingCondition, ScalingStatus, ViewError, WorkloadFleet, WorkloadId, WorkloadView};
pub use live::{GatewayMap, LiveFleet};
pub use metrics::ScalerMetrics;
pub use run::{PROXY_PORT, Scaler};
