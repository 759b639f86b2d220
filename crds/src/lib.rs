//! The API `agents.recif.dev/v1`: its types, and pure functions over them that operator, CLI and gateway share.
//!
//! One file per kind. No client, no I/O: whoever has an object can ask this crate what it means.

pub mod agent;
pub mod digest;
pub mod kinds;
pub mod phase;
pub mod references;
pub mod schema;
pub mod status;
pub mod tool;
mod verbatim;
pub mod why;

pub use agent::{Agent, AgentSpec};
pub use kinds::{KINDS, Kind, Role, manifests};
pub use phase::{Phase, ReferencePhase, Standing, WorkloadPhase};
pub use references::{RefKind, Reference};
pub use status::{ChildRecord, Failure, HistoryEntry, MachineStatus, ReferenceStatus, WorkloadStatus};
pub use tool::{Tool, ToolSpec};
pub use why::Why;

/// The API group of every kind.
pub const GROUP: &str = "agents.recif.dev";
/// The only version served.
pub const VERSION: &str = "v1";
/// The field manager of every write of the operator.
pub const FIELD_MANAGER: &str = "recif-operator";
/// The value of `app.kubernetes.io/managed-by` on every child.
pub const MANAGED_BY: &str = "recif-operator";
/// The finalizer of the workload kinds.
pub const FINALIZER: &str = "recif.dev/cleanup";
