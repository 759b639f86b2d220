//! Implements the state machine of the kinds that run Pods: one action per file, over the [`WorkloadKind`] trait.
//!
//! The life of a workload: `accept` validates the spec, `resolve` waits for every reference and pins what it read, `render`
//! writes the configuration, `deploy` applies the Deployment and waits for the rollout, `monitor` watches over all of it,
//! `recover` checks whether the cause of a failure is gone, and `drain` removes the Pods when the object is deleted.

mod accept;
mod children;
mod degradation;
mod deploy;
mod disruption;
mod drain;
mod edges;
mod egress;
mod external;
mod foreign;
mod health;
mod images;
mod inputs;
mod kind;
mod monitor;
mod old_files;
mod policies;
mod recover;
mod render;
mod replicas;
mod resolve;
mod telemetry;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crds::WorkloadPhase;
use machine::{Action, Table, TableError};

use crate::{deps::Deps, kind::Registry};

pub use accept::Accept;
pub(crate) use children::check_owner;
pub use degradation::Degradable;
pub use deploy::Deploy;
pub use drain::Drain;
pub use edges::{CONDITIONS, DECISION_PATHS, EDGES, NOT_RETRYABLE};
pub(crate) use external::external_digest;
pub(crate) use health::{is_available, note_unready};
pub use kind::{RenderedWorkload, WorkloadKind};
pub use monitor::Monitor;
pub(crate) use policies::with_policies;
pub use recover::Recover;
pub use render::Render;
pub use replicas::{REPLICAS, ReplicasHandover, SCALER, handover, min_running};
pub use resolve::Resolve;

/// Configuration of the driver for workloads. Each kind sets its own `render_version`.
pub const TABLE: Table<WorkloadPhase> = Table {
    edges: EDGES,
    render_version: 0,
    not_retryable: NOT_RETRYABLE,
    conditions: CONDITIONS,
    available_follows_ready: false,
    decision_paths: DECISION_PATHS,
};

/// Returns the actions of a workload with the table of its kind.
///
/// # Errors
/// A defect in the table or in the list of actions.
pub fn registry<K: WorkloadKind>() -> Result<Registry<K>, TableError> {
    Registry::new(K::TABLE, actions(), external_digest)
}

/// Returns the actions of a workload, in the order in which they are asked.
pub fn actions<K: WorkloadKind>() -> Vec<Arc<dyn Action<K, Deps>>> {
    vec![
        Arc::new(Accept),
        Arc::new(Resolve),
        Arc::new(Render),
        Arc::new(Deploy),
        Arc::new(Monitor),
        Arc::new(Recover),
        Arc::new(Drain),
    ]
}
