//! Workloads whose change concerns the scaler, until it takes them.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use actions::workload::WorkloadKind;
use cluster::Change;
use tokio::sync::Notify;

use super::fleet::WorkloadId;

/// Workloads that changed since the last call of `drain`.
#[derive(Debug, Default)]
pub(super) struct ChangedWorkloads {
    ids: Mutex<HashSet<WorkloadId>>,
    added: Notify,
}

impl ChangedWorkloads {
    /// Adds a workload.
    pub(super) fn add(&self, id: WorkloadId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.added.notify_one();
    }

    /// Takes the workloads, once there is one.
    pub(super) async fn drain(&self) -> Vec<WorkloadId> {
        loop {
            let taken = std::mem::take(&mut *self.ids.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken.into_iter().collect();
            }
            self.added.notified().await;
        }
    }
}

/// Reports whether a change of a workload concerns the scaler: its identity or spec is new, and it has scaling or had.
pub(super) fn concerns_scaling<K: WorkloadKind>(change: &Change<K>) -> bool {
    let of = |cr: &Option<Arc<K>>| cr.as_ref().map(|cr| (cr.uid().to_owned(), cr.generation(), cr.is_deleting()));
    let scaled = |cr: &Option<Arc<K>>| cr.as_ref().is_some_and(|cr| cr.scaling().is_some());
    of(&change.old) != of(&change.new) && (scaled(&change.old) || scaled(&change.new))
}
