//! The way of messages to one client's stream: an [`Outlet`] where they go in, an [`Inlet`] where they come out.
//!
//! What waits in it is bounded by bytes, not by messages, for a message may be small or very large. A client that does not
//! read makes the sender wait ([`Outlet::send`]) or is refused ([`Outlet::offer`]): whoever must not be held up offers.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};

use super::memory::Share;

/// What may wait for a client, in bytes. A larger message goes when nothing else waits.
const WAITING: u32 = 1 << 20;

/// What a stream carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A message that answers nothing.
    Message(Bytes),
    /// The answer to the request whose stream this is; nothing follows.
    Answer {
        /// The message.
        message: Bytes,
        /// Status of the HTTP answer, if it is the first thing on the stream.
        status: u16,
    },
    /// Nothing follows.
    End,
}

impl Event {
    /// The same, with its share of the memory of all.
    pub(super) fn held(self, share: Share) -> Self {
        match self {
            Self::Message(message) => Self::Message(share.hold(message)),
            Self::Answer { message, status } => Self::Answer { message: share.hold(message), status },
            Self::End => Self::End,
        }
    }

    fn size(&self) -> u32 {
        let length = match self {
            Self::Message(message) | Self::Answer { message, .. } => message.len(),
            Self::End => 0,
        };
        u32::try_from(length).map_or(WAITING, |length| length.clamp(1, WAITING))
    }
}

/// Why a message did not go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The client does not read.
    Full,
    /// Nobody takes anything out any more.
    Gone,
}

type Waiting = (Event, Option<OwnedSemaphorePermit>);

/// Where messages go in. Dropping the last one without [`Event::End`] or an answer breaks the stream off.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    waiting: mpsc::UnboundedSender<Waiting>,
    space: Arc<Semaphore>,
}

/// Where messages come out.
pub(super) struct Inlet {
    waiting: mpsc::UnboundedReceiver<Waiting>,
    space: Arc<Semaphore>,
    leave: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// A new stream; `leave` is called when nobody takes anything out of it any more.
pub(super) fn stream(leave: impl FnOnce() + Send + Sync + 'static) -> (Outlet, Inlet) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let space = Arc::new(Semaphore::new(WAITING as usize));
    let outlet = Outlet { waiting: sender, space: space.clone() };
    (outlet, Inlet { waiting: receiver, space, leave: Some(Box::new(leave)) })
}

impl Outlet {
    /// Puts a message in as soon as there is room for it; says whether anybody will take it.
    pub(super) async fn send(&self, event: Event) -> bool {
        match self.space.clone().acquire_many_owned(event.size()).await {
            Ok(permit) => self.waiting.send((event, Some(permit))).is_ok(),
            Err(_) => false,
        }
    }

    /// Puts a message in if there is room for it.
    pub(super) fn offer(&self, event: Event) -> Result<(), Refused> {
        match self.space.clone().try_acquire_many_owned(event.size()) {
            Ok(permit) => self.waiting.send((event, Some(permit))).map_err(|_| Refused::Gone),
            Err(TryAcquireError::NoPermits) => Err(Refused::Full),
            Err(TryAcquireError::Closed) => Err(Refused::Gone),
        }
    }

    /// Puts a message in that is bounded otherwise.
    pub(super) fn force(&self, event: Event) {
        // Nobody is there to miss it.
        let _ = self.waiting.send((event, None));
    }
}

impl Inlet {
    /// The next message; none when the stream was broken off.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.waiting.poll_recv(cx).map(|waiting| waiting.map(|(event, _)| event))
    }

    /// The next message; none when the stream was broken off.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.waiting.recv().await.map(|(event, _)| event)
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.space.close();
        if let Some(leave) = self.leave.take() {
            leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt;

    use super::*;

    fn message(length: usize) -> Event {
        Event::Message(vec![b'x'; length].into())
    }

    #[test]
    fn a_client_that_does_not_read_is_refused_and_may_go_on_when_it_reads() {
        let (outlet, mut inlet) = stream(|| ());
        let half = WAITING as usize / 2;
        assert_eq!(outlet.offer(message(half)), Ok(()));
        assert_eq!(outlet.offer(message(half + 1)), Err(Refused::Full));
        assert!(outlet.send(message(half + 1)).now_or_never().is_none(), "it waits");
        assert!(inlet.next().now_or_never().flatten().is_some());
        assert_eq!(outlet.offer(message(100 * half)), Ok(()), "a larger one goes alone");
        assert_eq!(outlet.offer(message(1)), Err(Refused::Full));
        outlet.force(Event::End);
        assert!(matches!(inlet.next().now_or_never(), Some(Some(Event::Message(_)))));
        assert_eq!(inlet.next().now_or_never(), Some(Some(Event::End)));
    }

    #[test]
    fn whoever_waits_for_a_client_that_leaves_goes_on() {
        let left = Arc::new(AtomicBool::new(false));
        let told = left.clone();
        let (outlet, inlet) = stream(move || told.store(true, Ordering::Relaxed));
        assert_eq!(outlet.offer(message(WAITING as usize)), Ok(()));
        let mut waiting = Box::pin(outlet.send(message(1)));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(inlet);
        assert_eq!(waiting.now_or_never(), Some(false));
        assert!(left.load(Ordering::Relaxed));
        assert_eq!(outlet.offer(message(1)), Err(Refused::Gone));
    }

    #[test]
    fn a_stream_without_outlets_is_broken_off() {
        let (outlet, mut inlet) = stream(|| ());
        outlet.force(message(1));
        drop(outlet);
        assert!(inlet.next().now_or_never().flatten().is_some());
        assert_eq!(inlet.next().now_or_never(), Some(None));
    }
}
