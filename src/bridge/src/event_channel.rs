//! Channel of events to one client's stream, bounded by bytes: a [`StreamSender`] and a [`StreamReceiver`].
//!
//! The bound counts bytes and not messages, because a message may be small or very large. A client that does not read
//! makes the sender wait ([`StreamSender::send`]: backpressure) or fails the send ([`StreamSender::try_send`]). A
//! sender that must not be held up uses the latter.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};

use super::memory::MemoryPermit;

/// Most bytes that are queued for a client. A larger message is queued when no other one is.
const MAX_QUEUED_BYTES: u32 = 1 << 20;

/// Event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StreamEvent {
    /// A notification, or a request of the server.
    Message(Bytes),
    /// The response to the request whose stream this is; the last event.
    Response {
        /// The message.
        message: Bytes,
        /// Status of the HTTP response, if this is the first event of the stream.
        status: u16,
    },
    /// The end of the stream, without a response.
    End,
}

impl StreamEvent {
    /// Returns the event with its permit of the memory budget attached.
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

/// Reason for which an event was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrySendError {
    /// The queue is full: the client does not read.
    Full,
    /// The receiver is gone.
    Closed,
}

type QueuedEvent = (StreamEvent, Option<OwnedSemaphorePermit>);

/// Sender of events. If the last one is dropped without [`StreamEvent::End`] or [`StreamEvent::Response`], the stream
/// is aborted.
///
/// Invariant: the bytes queued by `send` and `try_send` are at most `MAX_QUEUED_BYTES`.
#[derive(Debug, Clone)]
pub(super) struct StreamSender {
    queue: mpsc::UnboundedSender<QueuedEvent>,
    space: Arc<Semaphore>,
}

/// Receiver of events.
pub(super) struct StreamReceiver {
    queue: mpsc::UnboundedReceiver<QueuedEvent>,
    space: Arc<Semaphore>,
    on_close: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// Returns a new channel; `leave` is called when the receiver is dropped.
pub(super) fn channel(leave: impl FnOnce() + Send + Sync + 'static) -> (StreamSender, StreamReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let space = Arc::new(Semaphore::new(MAX_QUEUED_BYTES as usize));
    let outlet = StreamSender { queue: sender, space: space.clone() };
    (outlet, StreamReceiver { queue: receiver, space, on_close: Some(Box::new(leave)) })
}

impl StreamSender {
    /// Queues an event as soon as there is room. Returns whether the receiver is still there.
    pub(super) async fn send(&self, event: StreamEvent) -> bool {
        match self.space.clone().acquire_many_owned(event.size()).await {
            Ok(permit) => self.queue.send((event, Some(permit))).is_ok(),
            Err(_) => false,
        }
    }

    /// Queues an event if there is room.
    pub(super) fn try_send(&self, event: StreamEvent) -> Result<(), TrySendError> {
        match self.space.clone().try_acquire_many_owned(event.size()) {
            Ok(permit) => self.queue.send((event, Some(permit))).map_err(|_| TrySendError::Closed),
            Err(TryAcquireError::NoPermits) => Err(TrySendError::Full),
            Err(TryAcquireError::Closed) => Err(TrySendError::Closed),
        }
    }

    /// Queues an event regardless of the bound; the caller bounds such events otherwise.
    pub(super) fn force(&self, event: StreamEvent) {
        // A receiver that is gone needs no event.
        let _ = self.queue.send((event, None));
    }
}

impl StreamReceiver {
    /// Polls for the next event; `None` when the stream was aborted.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        self.queue.poll_recv(cx).map(|waiting| waiting.map(|(event, _)| event))
    }

    /// Waits for the next event; `None` when the stream was aborted.
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
    fn a_sender_goes_on_when_its_client_leaves() {
        let left = Arc::new(AtomicBool::new(false));
        let is_closed = left.clone();
        let (outlet, inlet) = channel(move || is_closed.store(true, Ordering::Relaxed));
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
