//! Slot of a Pod that one request holds.

use std::sync::Arc;

use super::{pod::UpstreamPod, workload::WorkloadState};

/// Permit to send one request to a Pod. Dropping it releases the slot, and the next queued request gets it.
#[derive(Debug)]
pub(super) struct SlotPermit {
    workload: Arc<WorkloadState>,
    /// Pod that the slot belongs to.
    pub(super) pod: Arc<UpstreamPod>,
    end: SlotEnd,
}

/// Finding about the Pod when a slot is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotEnd {
    /// None: the slot was not used, or the request ended without a whole response.
    Unknown,
    /// The Pod has responded in full and so has room.
    Served,
    /// The Pod takes no request now, or the queue is locked: no queued request gets the slot.
    Withheld,
}

impl SlotPermit {
    /// Creates the permit for a slot that was taken.
    pub(super) fn new(workload: Arc<WorkloadState>, pod: Arc<UpstreamPod>) -> Self {
        Self { workload, pod, end: SlotEnd::Unknown }
    }

    /// Releases the slot: the Pod has responded in full.
    pub(super) fn served(mut self) {
        self.end = SlotEnd::Served;
    }

    /// Releases the slot: the Pod has no room.
    pub(super) fn refused(mut self, now: u64) {
        self.end = SlotEnd::Withheld;
        self.pod.refused(now);
    }

    /// Releases the slot: no connection to the Pod could be made.
    pub(super) fn unreachable(mut self, now: u64) {
        self.end = SlotEnd::Withheld;
        self.pod.unreachable(now);
    }

    /// Releases the slot without granting it to a queued request: the queue is locked.
    pub(super) fn withhold(mut self) {
        self.end = SlotEnd::Withheld;
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.pod.release(self.end == SlotEnd::Served, self.workload.clock.now());
        if self.end != SlotEnd::Withheld {
            self.workload.dispatch();
        }
    }
}
