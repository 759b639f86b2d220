//! Holds a step of an object, as the fleet keeps it.

use std::sync::Arc;

use super::record::Record;
use meta::HistoryEntry;

/// A move, wait or retry that an object's history got.
#[derive(Debug, Clone)]
pub struct FleetTransition {
    /// The stamp of the change that brought it.
    pub stamp: u64,
    /// The object.
    pub record: Arc<Record>,
    /// The entry.
    pub entry: Arc<HistoryEntry>,
}
