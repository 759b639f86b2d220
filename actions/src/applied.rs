//! Remembers what was applied between an apply and the status write that records it, and backs off exponentially from repairs of
//! a child that another client keeps changing.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crds::ChildRecord;
use machine::remove_and_shrink;

use crate::ports::ChildRef;

/// Baselines of applied children by owner uid, for applies that no status records yet. The record is stored with the next status
/// write; if the process ends before, the child is applied once more, which changes nothing.
///
/// Invariant: a record is dropped by the first read after the status holds the same one, and no owner is kept without children.
#[derive(Debug, Default)]
pub struct AppliedRecords(Mutex<HashMap<String, HashMap<ChildRef, AppliedRecord>>>);

#[derive(Debug, Clone, Default)]
struct AppliedRecord {
    record: Option<ChildRecord>,
    /// Number of repairs in a row, and the time of the last one.
    repairs: u32,
    repaired_at: Duration,
}

impl AppliedRecords {
    /// Returns the baseline of a child of `owner`, a uid: from this process if it applied the child, else the one in the owner's
    /// status, whose records are `stored`.
    pub(super) fn record(&self, owner: &str, stored: &[ChildRecord], child: &ChildRef) -> Option<ChildRecord> {
        let stored = stored_record(stored, child);
        let mut owners = self.lock();
        let Some(children) = owners.get_mut(owner) else { return stored.cloned() };
        match children.get_mut(child) {
            Some(baseline) if baseline.record.as_ref() == stored => {
                baseline.record = None;
                if baseline.repairs == 0 {
                    children.remove(child);
                }
                if children.is_empty() {
                    remove_and_shrink(&mut owners, owner);
                }
                stored.cloned()
            }
            Some(AppliedRecord { record: Some(record), .. }) => Some(record.clone()),
            _ => stored.cloned(),
        }
    }

    /// Returns how long to leave a child alone that another client keeps changing: exponential back-off, none before the first
    /// repair, then 2 s … 5 min.
    pub(crate) fn repair_backoff(&self, owner: &str, child: &ChildRef, now: Duration) -> Duration {
        let mut owners = self.lock();
        let Some(baseline) = owners.get_mut(owner).and_then(|children| children.get_mut(child)) else {
            return Duration::ZERO;
        };
        if baseline.repairs == 0 {
            return Duration::ZERO;
        }
        let wait = Duration::from_secs(1).saturating_mul(1 << baseline.repairs.min(9)).min(Duration::from_secs(300));
        let since = now.saturating_sub(baseline.repaired_at);
        if since > wait * 2 + Duration::from_secs(10) {
            baseline.repairs = 0;
            return Duration::ZERO;
        }
        wait.saturating_sub(since)
    }

    /// Records a repair of a child.
    pub(crate) fn repaired(&self, owner: &str, child: &ChildRef, now: Duration) {
        self.change(owner, child, |baseline| {
            baseline.repairs = baseline.repairs.saturating_add(1);
            baseline.repaired_at = now;
        });
    }

    /// Forgets everything: another leader may have applied children since, which only the statuses record.
    pub fn clear(&self) {
        *self.lock() = HashMap::new();
    }

    /// Forgets the children of an object that is being deleted.
    pub(super) fn forget(&self, owner: &str) {
        remove_and_shrink(&mut self.lock(), owner);
    }

    /// Forgets a child that was removed.
    pub(super) fn removed(&self, owner: &str, child: &ChildRef) {
        let mut owners = self.lock();
        let Some(children) = owners.get_mut(owner) else { return };
        children.remove(child);
        if children.is_empty() {
            remove_and_shrink(&mut owners, owner);
        }
    }

    pub(super) fn applied(&self, owner: &str, child: &ChildRef, record: ChildRecord) {
        self.change(owner, child, |baseline| baseline.record = Some(record));
    }

    fn change(&self, owner: &str, child: &ChildRef, change: impl FnOnce(&mut AppliedRecord)) {
        change(self.lock().entry(owner.to_owned()).or_default().entry(child.clone()).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<ChildRef, AppliedRecord>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the record of a child among those of a status.
pub(crate) fn stored_record<'a>(records: &'a [ChildRecord], child: &ChildRef) -> Option<&'a ChildRecord> {
    records.iter().find(|record| is_record_of(record, child))
}

/// Reports whether the record is that of this child.
pub(crate) fn is_record_of(record: &ChildRecord, child: &ChildRef) -> bool {
    record.kind == child.kind.as_str() && record.name == child.name
}

#[cfg(test)]
mod tests {
    use crds::{Agent, WorkloadStatus};
    use serde_json::json;

    use super::*;
    use crate::ports::ChildKind;

    #[test]
    fn what_the_status_tells_is_not_kept_here_but_for_repairs() {
        let body = json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": { "name": "a", "uid": "u" },
            "spec": { "name": "A", "framework": "corail" } });
        let mut cr: Agent = serde_json::from_value(body).unwrap();
        let child = ChildRef { kind: ChildKind::Service, namespace: "ns".into(), name: "a".into() };
        let record =
            ChildRecord { kind: "Service".into(), name: "a".into(), uid: "s".into(), ..ChildRecord::default() };
        let baselines = AppliedRecords::default();
        baselines.applied("u", &child, record.clone());
        assert_eq!(
            baselines.record("u", &cr.status.clone().unwrap_or_default().children, &child),
            Some(record.clone()),
            "no status tells of it yet"
        );
        assert_eq!(baselines.lock().len(), 1);
        cr.status = Some(WorkloadStatus { children: vec![record.clone()], ..WorkloadStatus::default() });
        assert_eq!(
            baselines.record("u", &cr.status.clone().unwrap_or_default().children, &child),
            Some(record.clone())
        );
        assert!(baselines.lock().is_empty());
        baselines.repaired("u", &child, Duration::ZERO);
        assert_eq!(baselines.record("u", &cr.status.clone().unwrap_or_default().children, &child), Some(record));
        assert!(
            baselines.repair_backoff("u", &child, Duration::from_secs(1)) > Duration::ZERO,
            "repairs are remembered"
        );
    }
}
