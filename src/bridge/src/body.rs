//! Body of a response: empty, a text, or a stream of server-sent events (SSE).

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::event_channel::{StreamEvent, StreamReceiver};

/// Longest silence on a stream; a comment is then sent, so that intermediaries see that the stream is alive.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Largest event that is copied into one piece, in bytes.
const MAX_COPIED_EVENT: usize = 64 << 10;
const KEEP_ALIVE_COMMENT: &[u8] = b": still here\n\n";

/// The stream was aborted; the connection must not end as if it were complete.
#[derive(Debug, thiserror::Error)]
#[error("the client did not read what it asked for")]
pub(super) struct StreamAborted;

/// Body of a response.
pub(super) enum BridgeBody {
    /// Complete text; `None` once it is taken.
    Full(Option<Bytes>),
    /// Messages as they come.
    Events(SseStream),
}

/// Stream of server-sent events.
///
/// Invariant: once `is_over` is set, only `pending_pieces` are still sent.
pub(super) struct SseStream {
    receiver: StreamReceiver,
    /// Event that was received before the response was decided to be a stream.
    first: Option<StreamEvent>,
    keep_alive: Pin<Box<Sleep>>,
    /// Pieces still to be sent of an event that is not copied, the next one last.
    pending_pieces: Vec<Bytes>,
    is_over: bool,
}

impl BridgeBody {
    /// Returns a body with this text, or an empty one.
    pub(super) fn full(text: impl Into<Bytes>) -> Self {
        Self::Full(Some(text.into()).filter(|bytes| !bytes.is_empty()))
    }

    /// Returns a stream that begins with `first`.
    pub(super) fn events(inlet: StreamReceiver, first: Option<StreamEvent>) -> Self {
        Self::Events(SseStream {
            receiver: inlet,
            first,
            keep_alive: Box::pin(sleep(KEEP_ALIVE_INTERVAL)),
            pending_pieces: Vec::new(),
            is_over: false,
        })
    }
}

impl http_body::Body for BridgeBody {
    type Data = Bytes;
    type Error = StreamAborted;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamAborted>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => events.poll(cx).map(|next| next.map(|next| next.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Events(events) => events.is_over && events.pending_pieces.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

impl SseStream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        if let Some(piece) = self.pending_pieces.pop() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.receiver.poll_next(cx),
        };
        let bytes = match next {
            Poll::Ready(Some(StreamEvent::Message(message))) => self.event(message),
            Poll::Ready(Some(StreamEvent::Response { message, .. })) => {
                self.is_over = true;
                self.event(message)
            }
            Poll::Ready(Some(StreamEvent::End)) => {
                self.is_over = true;
                return Poll::Ready(None);
            }
            Poll::Ready(None) => {
                self.is_over = true;
                return Poll::Ready(Some(Err(StreamAborted)));
            }
            Poll::Pending => {
                ready!(self.keep_alive.as_mut().poll(cx));
                Bytes::from_static(KEEP_ALIVE_COMMENT)
            }
        };
        self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE_INTERVAL);
        Poll::Ready(Some(Ok(bytes)))
    }
}

impl SseStream {
    /// Returns the first piece of an event. A large message is not copied: it keeps its permit of the memory budget
    /// until it is sent.
    fn event(&mut self, message: Bytes) -> Bytes {
        const START: &[u8] = b"event: message\ndata: ";
        const END: &[u8] = b"\n\n";
        if message.len() > MAX_COPIED_EVENT {
            self.pending_pieces = vec![Bytes::from_static(END), message];
            return Bytes::from_static(START);
        }
        let mut event = BytesMut::with_capacity(message.len() + START.len() + END.len());
        for part in [START, &message, END] {
            event.put_slice(part);
        }
        event.freeze()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body::Body as _;

    use super::*;
    use crate::event_channel::channel;

    async fn next(body: &mut BridgeBody) -> Option<Result<String, ()>> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        Some(frame.map_err(|_| ()).map(|frame| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_says_that_it_is_alive() {
        let (outlet, inlet) = channel(|| ());
        let mut body = BridgeBody::events(inlet, Some(StreamEvent::Message("a".into())));
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "event: message\ndata: a\n\n");
        for _ in 0..3 {
            let before = Instant::now();
            assert_eq!(next(&mut body).await.unwrap().unwrap(), ": still here\n\n");
            assert_eq!(before.elapsed(), KEEP_ALIVE_INTERVAL);
        }
        outlet.force(StreamEvent::Response { message: "b".into(), status: 200 });
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "event: message\ndata: b\n\n");
        assert!(body.is_end_stream() && next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn a_large_event_is_sent_in_pieces() {
        let (outlet, inlet) = channel(|| ());
        let message = "x".repeat(MAX_COPIED_EVENT + 1);
        outlet.force(StreamEvent::Response { message: message.clone().into(), status: 200 });
        let mut body = BridgeBody::events(inlet, None);
        let mut sent = String::new();
        while !body.is_end_stream() {
            sent += &next(&mut body).await.unwrap().unwrap();
        }
        assert_eq!(sent, format!("event: message\ndata: {message}\n\n"));
    }

    #[tokio::test]
    async fn only_a_stream_that_was_ended_ends_well() {
        let (outlet, inlet) = channel(|| ());
        outlet.force(StreamEvent::End);
        assert!(next(&mut BridgeBody::events(inlet, None)).await.is_none());
        let (outlet, inlet) = channel(|| ());
        drop(outlet);
        assert_eq!(next(&mut BridgeBody::events(inlet, None)).await, Some(Err(())));
    }
}
