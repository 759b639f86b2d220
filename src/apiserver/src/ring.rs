//! The ring of the last changes, from which watches read.
//!
//! All kinds share it, but a watch of one kind loses nothing by changes of others: for each kind the ring knows the version of
//! the last change that it has forgotten.

use std::{collections::VecDeque, sync::Arc};

use crate::{key::StoreKey, snapshot::Snapshot};

/// Changes that are kept.
pub(crate) const KEPT_CHANGES: usize = 4096;
/// Bytes of JSON that are kept.
const KEPT_BYTES: usize = 8 * 1024 * 1024;

/// One change. `old` is missing for a creation; `new` is missing for a deletion.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: StoreKey,
    pub(crate) old: Option<Arc<Snapshot>>,
    pub(crate) new: Option<Arc<Snapshot>>,
}

/// The last changes, oldest first.
#[derive(Debug)]
pub(crate) struct Ring {
    changes: VecDeque<Change>,
    bytes: usize,
    /// Version of the last change of each kind that is not kept any more.
    forgotten: Vec<u64>,
}

impl Change {
    fn len(&self) -> usize {
        self.new.as_ref().or(self.old.as_ref()).map_or(0, |snapshot| snapshot.len())
    }
}

impl Ring {
    /// Makes an empty ring for a number of kinds, which begins behind a version.
    pub(crate) fn new(kinds: usize, version: u64) -> Self {
        Self { changes: VecDeque::new(), bytes: 0, forgotten: vec![version; kinds] }
    }

    /// Adds a change, and forgets the oldest ones if there are too many. The last one stays.
    pub(crate) fn push(&mut self, change: Change) {
        self.bytes += change.len();
        self.changes.push_back(change);
        while self.changes.len() > KEPT_CHANGES || (self.bytes > KEPT_BYTES && self.changes.len() > 1) {
            let Some(oldest) = self.changes.pop_front() else { return };
            self.bytes -= oldest.len();
            if let Some(forgotten) = self.forgotten.get_mut(oldest.key.kind) {
                *forgotten = oldest.version;
            }
        }
    }

    /// Returns the changes of a kind after a version, oldest first.
    ///
    /// # Errors
    /// The version of the last forgotten change of the kind, if it is one of those that are asked for.
    pub(crate) fn after(&self, kind: usize, version: u64) -> Result<impl Iterator<Item = &Change>, u64> {
        match self.forgotten.get(kind) {
            Some(forgotten) if version < *forgotten => Err(*forgotten),
            _ => {
                let start = self.changes.partition_point(|change| change.version <= version);
                Ok(self.changes.range(start..).filter(move |change| change.key.kind == kind))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    fn change(version: u64, kind: usize, bytes: usize) -> Change {
        let key = StoreKey { kind, namespace: String::new(), name: "a".to_owned() };
        let snapshot = Snapshot::of(&kinds::all()[kind], &mut json!({ "metadata": { "name": "x".repeat(bytes) } }));
        Change { version, key, old: None, new: Some(Arc::new(snapshot)) }
    }

    #[test]
    fn a_kind_loses_nothing_by_the_changes_of_others() {
        let mut ring = Ring::new(2, 100);
        ring.push(change(101, 1, 1));
        for version in 102..=101 + KEPT_CHANGES as u64 {
            ring.push(change(version, 0, 1));
        }
        let after = |kind, version| ring.after(kind, version).map(Iterator::count);
        assert_eq!(after(0, 100), Ok(KEPT_CHANGES));
        assert_eq!(after(1, 100), Err(101), "its change is forgotten");
        assert_eq!(after(1, 101), Ok(0), "none is missing");
        assert_eq!(after(0, 99), Err(100), "the ring begins behind");
    }

    #[test]
    fn many_bytes_are_forgotten_earlier_but_not_the_last_change() {
        let mut ring = Ring::new(1, 100);
        for version in 101..=103 {
            ring.push(change(version, 0, KEPT_BYTES / 2));
        }
        assert_eq!(ring.after(0, 101).map(Iterator::count), Err(102));
        assert_eq!(ring.after(0, 102).map(Iterator::count), Ok(1));
        ring.push(change(104, 0, 2 * KEPT_BYTES));
        assert_eq!(ring.after(0, 103).map(Iterator::count), Ok(1));
    }
}
