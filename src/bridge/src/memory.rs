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
const ALL: usize = 64 << 20;
/// How long a child whose clients read slowly waits for room.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is said of a message that there is no room for.
pub(super) const NO_ROOM: &str = "the MCP bridge holds as many messages as it may; try again";

/// The room for messages.
#[derive(Debug, Clone)]
pub(super) struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL)))
    }
}

/// A part of it, given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Share(Option<OwnedSemaphorePermit>);

struct Held<T> {
    bytes: T,
    _share: Share,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Memory {
    /// Room for so many bytes, if there is some.
    pub(super) fn try_take(&self, bytes: usize) -> Option<Share> {
        let bytes = u32::try_from(bytes).ok()?;
        self.0.clone().try_acquire_many_owned(bytes).ok().map(|permit| Share(Some(permit)))
    }

    /// Room for so many bytes, which is waited for a little.
    pub(super) async fn take(&self, bytes: usize) -> Option<Share> {
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes as usize <= ALL)?;
        let permit = timeout(PATIENCE, self.0.clone().acquire_many_owned(bytes)).await.ok()?;
        permit.ok().map(|permit| Share(Some(permit)))
    }
}

impl Share {
    /// Puts another part to it.
    pub(super) fn add(&mut self, Share(more): Share) {
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
    pub(super) fn hold(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Held { bytes, _share: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_there_is_no_room_for_waits_a_little_and_is_refused() {
        let memory = Memory::default();
        let mut share = memory.try_take(ALL - 10).unwrap();
        share.add(memory.try_take(10).unwrap());
        assert_eq!((share.size(), memory.try_take(1).is_none()), (ALL, true));
        let message = share.hold(vec![0_u8; 3]);
        let copy = message.clone();
        drop(message);
        assert!(memory.take(1).await.is_none(), "a copy is there");
        drop(copy);
        assert_eq!(memory.take(ALL).await.map(|share| share.size()), Some(ALL));
        assert!(memory.take(ALL + 1).await.is_none() && memory.try_take(usize::MAX).is_none());
    }
}
