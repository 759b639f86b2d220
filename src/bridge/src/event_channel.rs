//! The way of messages to one client's stream: an [`StreamSender`] where they go in, an [`StreamReceiver`] where they come out.
//!
//! What waits in it is bounded by bytes, not by messages, for a message may be small or very large. A client that does not
//! read makes the sender wait ([`StreamSender::send`]) or is refused ([`StreamSender::offer`]): whoever must not be held up offers.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};

use super::memory::MemoryPermit;

/// What may wait for a client, in bytes. A larger message goes when nothing else waits.
const MAX_QUEUED_BYTES: u32 = 1 << 20;

/// What a stream carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StreamEvent {
    /// A message that answers nothing.
    Message(Bytes),
    /// The answer to the request whose stream this is; nothing follows.
    Response {
        /// The message.
        message: Bytes,
        /// Status of the HTTP answer, if it is the first thing on the stream.
        status: u16,
    },
    /// Nothing follows.
    End,
}

impl StreamEvent {
    /// The same, with its share of the memory of all.
    pub(super) fn with_permit(self, share: MemoryPermit) -> Self {
        match self {
            Self::Message(message) => Self::Message(share.attach(message)),
            Self::Response { message, status } => Self::Response { message: share.attach(message), status },
            Self::End => Self::End,
        }
    }

    fn size(&self) -> u32 {
        let length = match self {
            Self::Message(message) | Self::Response { message, .. } => message.len(),
            Self::End => 0,
        };
        u32::try_from(length).map_or(MAX_QUEUED_BYTES, |length| length.clamp(1, MAX_QUEUED_BYTES))
    }
}

/// Why a message did not go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrySendError {
    /// The client does not read.
    Full,
    /// Nobody takes anything out any more.
    Closed,
}

type QueuedEvent = (StreamEvent, Option<OwnedSemaphorePermit>);

/// Where messages go in. Dropping the last one without [`Event::End`] or an answer breaks the stream off.
#[derive(Debug, Clone)]
pub(super) struct StreamSender {
    queue: mpsc::UnboundedSender<QueuedEvent>,
    space: Arc<Semaphore>,
}

/// Where messages come out.
pub(super) struct StreamReceiver {
    queue: mpsc::UnboundedReceiver<QueuedEvent>,
    space: Arc<Semaphore>,
    on_close: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// A new stream; `leave` is called when nobody takes anything out of it any more.
pub(super) fn channel(leave: impl FnOnce() + Send + Sync + 'static) -> (StreamSender, StreamReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let space = Arc::new(Semaphore::new(MAX_QUEUED_BYTES as usize));
    let outlet = StreamSender { queue: sender, space: space.clone() };
    (outlet, StreamReceiver { queue: receiver, space, on_close: Some(Box::new(leave)) })
}

impl StreamSender {
    /// Puts a message in as soon as there is room for it; says whether anybody will take it.
    pub(super) async fn send(&self, event: StreamEvent) -> bool {
        match self.space.clone().acquire_many_owned(event.size()).await {
            Ok(permit) => self.queue.send((event, Some(permit))).is_ok(),
            Err(_) => false,
        }
    }

    /// Puts a message in if there is room for it.
    pub(super) fn try_send(&self, event: StreamEvent) -> Result<(), TrySendError> {
        match self.space.clone().try_acquire_many_owned(event.size()) {
            Ok(permit) => self.queue.send((event, Some(permit))).map_err(|_| TrySendError::Closed),
            Err(TryAcquireError::NoPermits) => Err(TrySendError::Full),
            Err(TryAcquireError::Closed) => Err(TrySendError::Closed),
        }
    }

    /// Puts a message in that is bounded otherwise.
    pub(super) fn force(&self, event: StreamEvent) {
        // Nobody is there to miss it.
        let _ = self.queue.send((event, None));
    }
}

impl StreamReceiver {
    /// The next message; none when the stream was broken off.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        self.queue.poll_recv(cx).map(|waiting| waiting.map(|(event, _)| event))
    }

    /// The next message; none when the stream was broken off.
    pub(super) async fn next(&mut self) -> Option<StreamEvent> {
        self.queue.recv().await.map(|(event, _)| event)
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        self.space.close();
        if let Some(leave) = self.on_close.take() {
            leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt;

    use super::*;

    fn message(length: usize) -> StreamEvent {
        StreamEvent::Message(vec![b'x'; length].into())
    }

    #[test]
    fn a_client_that_does_not_read_is_refused_and_may_go_on_when_it_reads() {
        let (outlet, mut inlet) = channel(|| ());
        let half = MAX_QUEUED_BYTES as usize / 2;
        assert_eq!(outlet.try_send(message(half)), Ok(()));
        assert_eq!(outlet.try_send(message(half + 1)), Err(TrySendError::Full));
        assert!(outlet.send(message(half + 1)).now_or_never().is_none(), "it waits");
        assert!(inlet.next().now_or_never().flatten().is_some());
        assert_eq!(outlet.try_send(message(100 * half)), Ok(()), "a larger one goes alone");
        assert_eq!(outlet.try_send(message(1)), Err(TrySendError::Full));
        outlet.force(StreamEvent::End);
        assert!(matches!(inlet.next().now_or_never(), Some(Some(StreamEvent::Message(_)))));
        assert_eq!(inlet.next().now_or_never(), Some(Some(StreamEvent::End)));
    }

    #[test]
    fn whoever_waits_for_a_client_that_leaves_goes_on() {
        let left = Arc::new(AtomicBool::new(false));
        let told = left.clone();
        let (outlet, inlet) = channel(move || told.store(true, Ordering::Relaxed));
        assert_eq!(outlet.try_send(message(MAX_QUEUED_BYTES as usize)), Ok(()));
        let mut waiting = Box::pin(outlet.send(message(1)));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(inlet);
        assert_eq!(waiting.now_or_never(), Some(false));
        assert!(left.load(Ordering::Relaxed));
        assert_eq!(outlet.try_send(message(1)), Err(TrySendError::Closed));
    }

    #[test]
    fn a_stream_without_outlets_is_broken_off() {
        let (outlet, mut inlet) = channel(|| ());
        outlet.force(message(1));
        drop(outlet);
        assert!(inlet.next().now_or_never().flatten().is_some());
        assert_eq!(inlet.next().now_or_never(), Some(None));
    }
}
