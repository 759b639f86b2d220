//! Transition of an object, as the read model keeps it.

use std::sync::Arc;

use super::record::Record;
use meta::HistoryEntry;

/// Move, wait or retry: one new entry of an object's history.
#[derive(Debug, Clone)]
pub struct FleetTransition {
    /// Stamp of the change that brought it.
    pub stamp: u64,
    /// The object.
    pub record: Arc<Record>,
    /// The entry.
    pub entry: Arc<HistoryEntry>,
}
