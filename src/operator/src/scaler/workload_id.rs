//! Identity of a workload.

use meta::Key;

/// Identity of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadId {
    /// Its kind, such as `Agent`.
    pub kind: &'static str,
    /// Its namespace and name.
    pub key: Key,
}
