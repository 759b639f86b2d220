//! A reader of the journal: what changed since he looked last.

use std::{sync::Arc, time::Instant};

use tokio::sync::watch;

use super::{FleetCache, Record, transition::FleetTransition};

/// What somebody who follows the fleet reads next.
#[derive(Debug)]
pub enum Batch {
    /// Deletions were forgotten before they were read. What comes next begins anew with every object; what is not among
    /// them is gone.
    Reset,
    /// Objects in their newest state, oldest change first.
    Changes(Vec<ChangedObject>),
}

/// The newest state of an object that changed.
#[derive(Debug, Clone)]
pub struct ChangedObject {
    /// The stamp of the change.
    pub stamp: u64,
    /// The object; when it is gone, as it was last.
    pub record: Arc<Record>,
    /// Whether it is gone.
    pub deleted: bool,
    /// When the change was seen.
    pub at: Instant,
}

/// A reader of the journal. It holds its place and nothing else.
#[derive(Debug)]
pub struct Feed {
    fleet: Arc<FleetCache>,
    stamps: watch::Receiver<u64>,
    position: u64,
}

impl Feed {
    pub(super) fn new(fleet: Arc<FleetCache>, read: u64) -> Self {
        let stamps = fleet.stamps.subscribe();
        Self { fleet, stamps, position: read }
    }

    /// Up to which stamp was read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Waits for changes and returns at most `limit` of them, at least one. Dropped while it waits, it has read nothing.
    pub async fn next(&mut self, limit: usize) -> Batch {
        loop {
            if let Some(batch) = self.read(limit) {
                return batch;
            }
            // The fleet holds the sender, and this holds the fleet.
            let _ = self.stamps.changed().await;
        }
    }

    /// As [`Feed::next`], without waiting; `None`: nothing has changed.
    pub fn read(&mut self, limit: usize) -> Option<Batch> {
        // Marked first: what changes while this reads is looked at again.
        self.stamps.mark_unchanged();
        let inner = self.fleet.lock();
        if self.position != 0 && !inner.journal.knows(self.position) {
            self.position = 0;
            return Some(Batch::Reset);
        }
        let found = inner.journal.after(self.position, limit);
        drop(inner);
        let changes: Vec<_> = found
            .into_iter()
            .map(|(stamp, note)| ChangedObject { stamp, record: note.record, deleted: note.deleted, at: note.at })
            .collect();
        self.position = changes.last()?.stamp;
        Some(Batch::Changes(changes))
    }

    /// The transitions that came with the changes after `stamp`, up to the one read last, as far as they are remembered.
    pub fn transitions_after(&self, stamp: u64) -> Vec<FleetTransition> {
        self.fleet.lock().journal.transitions(stamp, self.position)
    }
}
