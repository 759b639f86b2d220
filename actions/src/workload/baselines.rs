//! What was applied: the memory between an apply and the status write that records it, and how often a child was put
//! back.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crds::ChildRecord;

use super::{Workload, children::stored};
use crate::ports::ChildRef;

/// By owner uid: baselines of applies whose record no status holds yet. The record goes out with the next status write; should the
/// process end before, the child is applied once more, which changes nothing.
#[derive(Debug, Default)]
pub struct Baselines(Mutex<HashMap<String, HashMap<ChildRef, Baseline>>>);

#[derive(Debug, Clone, Default)]
struct Baseline {
    record: Option<ChildRecord>,
    /// How often it was put back in a row, and when last.
    repairs: u32,
    repaired_at: Duration,
}

impl Baselines {
    /// The baseline of a child: of this process if it applied it, else the one in the status.
    pub(super) fn record<K: Workload>(&self, cr: &K, child: &ChildRef) -> Option<ChildRecord> {
        let stored = stored(cr, child);
        let mut owners = self.lock();
        let own = owners.get_mut(cr.uid()).and_then(|children| children.get_mut(child));
        match own {
            Some(baseline) if baseline.record.as_ref() == stored => {
                baseline.record = None;
                stored.cloned()
            }
            Some(Baseline { record: Some(record), .. }) => Some(record.clone()),
            _ => stored.cloned(),
        }
    }

    /// How long to leave a child alone that somebody keeps changing: nothing the first time, then 2 s … 5 min.
    pub(super) fn truce(&self, owner: &str, child: &ChildRef, now: Duration) -> Duration {
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

    /// Takes note that a child was put back.
    pub(super) fn repaired(&self, owner: &str, child: &ChildRef, now: Duration) {
        self.change(owner, child, |baseline| {
            baseline.repairs = baseline.repairs.saturating_add(1);
            baseline.repaired_at = now;
        });
    }

    /// Forgets everything: whoever led in the meantime applied things of which only the statuses tell.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Forgets the children of an object that is going.
    pub(super) fn forget(&self, owner: &str) {
        self.lock().remove(owner);
    }

    pub(super) fn applied(&self, owner: &str, child: &ChildRef, record: ChildRecord) {
        self.change(owner, child, |baseline| baseline.record = Some(record));
    }

    fn change(&self, owner: &str, child: &ChildRef, change: impl FnOnce(&mut Baseline)) {
        change(self.lock().entry(owner.to_owned()).or_default().entry(child.clone()).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<ChildRef, Baseline>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
