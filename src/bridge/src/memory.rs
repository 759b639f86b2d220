//! The memory that messages take, all together: those of clients on their way to a child, and those of children on their way to
//! a client, wherever they wait.
//!
//! Each message and each queue has a limit of its own, and there are many of them. So every message carries its share of one
//! number of bytes, from when it is read until its last copy is gone; what there is no room for is refused, and said.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// All messages together, in bytes: a few of the largest.
const CAPACITY: usize = 64 << 20;
/// How long a child whose clients read slowly waits for room.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is said of a message that there is no room for.
pub(super) const NO_ROOM: &str = "the MCP bridge holds as many messages as it may; try again";

/// The room for messages.
#[derive(Debug, Clone)]
pub(super) struct MemoryBudget(Arc<Semaphore>);

impl Default for MemoryBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CAPACITY)))
    }
}

/// A part of it, given back when it is dropped.
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
    /// Room for so many bytes, if there is some.
    pub(super) fn try_acquire(&self, bytes: usize) -> Option<MemoryPermit> {
        let bytes = u32::try_from(bytes).ok()?;
        self.0.clone().try_acquire_many_owned(bytes).ok().map(|permit| MemoryPermit(Some(permit)))
    }

    /// Room for so many bytes, which is waited for a little.
    pub(super) async fn acquire(&self, bytes: usize) -> Option<MemoryPermit> {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes as usize <= CAPACITY)?;
        let permit = timeout(ACQUIRE_TIMEOUT, self.0.clone().acquire_many_owned(bytes)).await.ok()?;
        permit.ok().map(|permit| MemoryPermit(Some(permit)))
    }
}

impl MemoryPermit {
    /// Puts another part to it.
    pub(super) fn merge(&mut self, MemoryPermit(more): MemoryPermit) {
        match (&mut self.0, more) {
            (Some(own), Some(more)) => own.merge(more),
            (own @ None, more) => *own = more,
            (Some(_), None) => {}
        }
    }

    /// How many bytes it is.
    pub(super) fn size(&self) -> usize {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// A message that takes its part for as long as any copy of it is there.
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
