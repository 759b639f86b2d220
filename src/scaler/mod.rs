//! How many Pods a workload needs, from what its Pods and the gateways say.
//!
//! Uses: cluster, cache
//!
//! Deciding is a pure function of samples and the time: `demand` turns what was heard into a load, `decide` turns the load
//! into a number of Pods.

mod decide;
mod demand;

pub use decide::{Decision, Direction, Policy, Window, decide};
pub use demand::{Demand, Heard, Meter, PodSample};
