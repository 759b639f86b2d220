//! Memory budget of all messages together: those of clients on their way to a child, and those of children on their way
//! to a client, wherever they are queued.
//!
//! Each message and each queue has a limit of its own, and there are many of them. So every message holds a permit for
//! its bytes, taken from one semaphore, from the time it is read until its last copy is dropped. A message for which
//! there is no room is refused, and its sender gets an error.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Bytes of all messages together: a few of the largest.
const CAPACITY: usize = 64 << 20;
/// Longest wait for room, for a child whose clients read slowly.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Error text for a message for which there is no room.
pub(super) const NO_ROOM: &str = "the MCP bridge holds as many messages as it may; try again";

/// Budget of bytes for messages.
#[derive(Debug, Clone)]
pub(super) struct MemoryBudget(Arc<Semaphore>);

impl Default for MemoryBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CAPACITY)))
    }
}

/// Permit for a part of the budget, given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct MemoryPermit(Option<OwnedSemaphorePermit>);

struct BytesWithPermit<T> {
    bytes: T,
    _permit: MemoryPermit,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for BytesWithPermit<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl MemoryBudget {
    /// Acquires a permit for this many bytes, if there is room.
    pub(super) fn try_acquire(&self, bytes: usize) -> Option<MemoryPermit> {
        let bytes = u32::try_from(bytes).ok()?;
        self.0.clone().try_acquire_many_owned(bytes).ok().map(|permit| MemoryPermit(Some(permit)))
    }

    /// Acquires a permit for this many bytes, and waits up to `ACQUIRE_TIMEOUT` for room.
    pub(super) async fn acquire(&self, bytes: usize) -> Option<MemoryPermit> {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes as usize <= CAPACITY)?;
        let permit = timeout(ACQUIRE_TIMEOUT, self.0.clone().acquire_many_owned(bytes)).await.ok()?;
        permit.ok().map(|permit| MemoryPermit(Some(permit)))
    }
}

impl MemoryPermit {
    /// Adds another permit to this one.
    pub(super) fn merge(&mut self, MemoryPermit(more): MemoryPermit) {
        match (&mut self.0, more) {
            (Some(own), Some(more)) => own.merge(more),
            (own @ None, more) => *own = more,
            (Some(_), None) => {}
        }
    }

    /// Returns the number of bytes of the permit.
    pub(super) fn size(&self) -> usize {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Returns the message with the permit attached, which is held as long as any copy of the message exists.
    pub(super) fn attach(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(BytesWithPermit { bytes, _permit: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_there_is_no_room_for_waits_a_little_and_is_refused() {
        let memory = MemoryBudget::default();
        let mut share = memory.try_acquire(CAPACITY - 10).unwrap();
        share.merge(memory.try_acquire(10).unwrap());
        assert_eq!((share.size(), memory.try_acquire(1).is_none()), (CAPACITY, true));
        let message = share.attach(vec![0_u8; 3]);
        let copy = message.clone();
        drop(message);
        assert!(memory.acquire(1).await.is_none(), "a copy is there");
        drop(copy);
        assert_eq!(memory.acquire(CAPACITY).await.map(|share| share.size()), Some(CAPACITY));
        assert!(memory.acquire(CAPACITY + 1).await.is_none() && memory.try_acquire(usize::MAX).is_none());
    }
}
