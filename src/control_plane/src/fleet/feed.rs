//! Reader of the journal: the changes since its last read.

use std::{sync::Arc, time::Instant};

use tokio::sync::watch;

use super::{FleetCache, Record, transition::FleetTransition};

/// Result of a read.
#[derive(Debug)]
pub enum Batch {
    /// Tombstones were evicted before they were read. The next reads start over with every object; an object that they do not
    /// return is deleted.
    Reset,
    /// Objects in their newest state, oldest change first.
    Changes(Vec<ChangedObject>),
}

/// Newest state of an object that changed.
#[derive(Debug, Clone)]
pub struct ChangedObject {
    /// Stamp of the change.
    pub stamp: u64,
    /// The object; after its deletion, its last version.
    pub record: Arc<Record>,
    /// True if the object is deleted.
    pub deleted: bool,
    /// Time at which the change was seen.
    pub at: Instant,
}

/// Reader of the journal. It holds only its position, and nothing is queued for it.
#[derive(Debug)]
pub struct Feed {
    fleet: Arc<FleetCache>,
    stamps: watch::Receiver<u64>,
    position: u64,
}

impl FleetCache {
    /// Creates a reader from the beginning: first it gets every object, then each change.
    pub fn feed(self: &Arc<Self>) -> Feed {
        Feed::new(self.clone(), 0)
    }

    /// Creates a reader of the changes after this stamp; `None`: see [`FleetCache::knows`].
    pub fn feed_after(self: &Arc<Self>, stamp: u64) -> Option<Feed> {
        self.knows(stamp).then(|| Feed::new(self.clone(), stamp))
    }
}

impl Feed {
    fn new(fleet: Arc<FleetCache>, read: u64) -> Self {
        let stamps = fleet.stamps.subscribe();
        Self { fleet, stamps, position: read }
    }

    /// Returns the stamp up to which changes were read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Waits for changes and returns at most `limit` of them, at least one. Cancel-safe: dropped while it waits, it has read
    /// nothing.
    pub async fn next(&mut self, limit: usize) -> Batch {
        loop {
            if let Some(batch) = self.read(limit) {
                return batch;
            }
            // Cannot fail: the fleet holds the sender, and this reader holds the fleet.
            let _ = self.stamps.changed().await;
        }
    }

    /// Reads as [`Feed::next`] does, without waiting; `None`: nothing has changed.
    pub fn read(&mut self, limit: usize) -> Option<Batch> {
        // Marked before the read, so that a change during the read wakes the next wait.
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

    /// Returns the remembered transitions that came with the changes after `stamp`, up to the last change read.
    pub fn transitions_after(&self, stamp: u64) -> Vec<FleetTransition> {
        self.fleet.lock().journal.transitions(stamp, self.position)
    }
}
