//! Streams of one session, and the routing of the child's messages to them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    event_channel::{StreamEvent, StreamSender},
    message::RpcId,
};

/// Most messages kept until a stream opens, and most bytes of them.
const MAX_KEPT: usize = 100;
const MAX_KEPT_BYTES: usize = 4 << 20;

/// Streams of a session in the order in which they were opened.
///
/// Invariant: every number in `waiting` is that of an open stream, and `kept_bytes` is the sum of the lengths in
/// `kept`.
#[derive(Debug)]
pub(super) struct Streams {
    last: u64,
    open: BTreeMap<u64, SessionStream>,
    /// Numbers of the streams of requests that have no response yet.
    waiting: HashMap<RpcId, u64>,
    kept: VecDeque<Bytes>,
    kept_bytes: usize,
    /// Time at which the last stream was closed or the last message came.
    quiet_since: Instant,
}

#[derive(Debug)]
struct SessionStream {
    sender: StreamSender,
    kind: StreamKind,
}

/// Purpose of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// Messages of the child that answer no request.
    Listening,
    /// The response to a request.
    Response {
        /// Token of the progress that belongs to this request.
        token: Option<RpcId>,
        /// Set if the client accepts events besides the response.
        takes_events: bool,
    },
}

/// A request with the id of one that has no response yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DuplicateId;

impl Streams {
    /// Returns the state of a new session.
    pub(super) fn new() -> Self {
        Self {
            last: 0,
            open: BTreeMap::new(),
            waiting: HashMap::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            quiet_since: Instant::now(),
        }
    }

    /// Opens a stream, for the response to the request `id` if there is one; returns its number. A stream that takes
    /// events gets the kept messages.
    pub(super) fn open(
        &mut self,
        id: Option<RpcId>,
        kind: StreamKind,
        outlet: StreamSender,
    ) -> Result<u64, DuplicateId> {
        self.last += 1;
        if let Some(id) = id
            && let Some(other) = self.waiting.insert(id.clone(), self.last)
        {
            self.waiting.insert(id, other);
            return Err(DuplicateId);
        }
        if kind.takes_events() {
            self.kept_bytes = 0;
            self.kept.drain(..).for_each(|message| outlet.force(StreamEvent::Message(message)));
        }
        self.open.insert(self.last, SessionStream { sender: outlet, kind });
        Ok(self.last)
    }

    /// Forgets a stream that its client has closed.
    pub(super) fn close(&mut self, number: u64) {
        self.open.remove(&number);
        self.waiting.retain(|_, waiting| *waiting != number);
        self.touch();
    }

    /// Records activity.
    pub(super) fn touch(&mut self) {
        self.quiet_since = Instant::now();
    }

    /// Returns the time since which nothing happened; `None` while a stream is open.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        self.open.is_empty().then_some(self.quiet_since)
    }

    /// Returns the time since which nothing happened, apart from listening streams; `None` while a request has no
    /// response.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.waiting.is_empty().then_some(self.quiet_since)
    }

    /// Returns the stream of a request that is answered now; no further event is put on it.
    pub(super) fn complete_request(&mut self, id: &RpcId) -> Option<StreamSender> {
        let stream = self.open.get_mut(&self.waiting.remove(id)?)?;
        stream.kind = StreamKind::Response { token: None, takes_events: false };
        Some(stream.sender.clone())
    }

    /// Returns the stream for a message that answers no request: progress goes to its request as long as that has no
    /// response; any other message to the newest listening stream, else to the newest stream that takes events.
    pub(super) fn target(&self, progress_of: Option<&RpcId>) -> Option<(u64, StreamSender)> {
        let named = |stream: &SessionStream| matches!(&stream.kind, StreamKind::Response { token, takes_events: true } if token.is_some() && token.as_ref() == progress_of);
        let newest =
            |wanted: &dyn Fn(&SessionStream) -> bool| self.open.iter().rev().find(|(_, stream)| wanted(stream));
        newest(&named)
            .or_else(|| newest(&|stream| stream.kind == StreamKind::Listening))
            .or_else(|| newest(&|stream| stream.kind.takes_events()))
            .map(|(number, stream)| (*number, stream.sender.clone()))
    }

    /// Keeps a message until a stream opens; returns those for which there is no more room, the oldest first.
    pub(super) fn keep(&mut self, message: Bytes) -> Vec<Bytes> {
        self.kept_bytes += message.len();
        self.kept.push_back(message);
        let mut dropped = Vec::new();
        while self.kept.len() > MAX_KEPT || self.kept_bytes > MAX_KEPT_BYTES {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.kept_bytes -= oldest.len();
            dropped.push(oldest);
        }
        dropped
    }

    /// Ends the listening streams, which would never end by themselves.
    pub(super) fn end_listening(&mut self) {
        for stream in self.open.values().filter(|stream| stream.kind == StreamKind::Listening) {
            stream.sender.force(StreamEvent::End);
        }
    }

    /// Ends every stream; `failure` makes the response to a request that has none.
    pub(super) fn end(&mut self, failure: impl Fn(&RpcId) -> Bytes) {
        for (id, number) in self.waiting.drain() {
            if let Some(stream) = self.open.remove(&number) {
                stream.sender.force(StreamEvent::Response { message: failure(&id), status: 200 });
            }
        }
        self.end_listening();
        self.open.clear();
        self.kept.clear();
    }
}

impl StreamKind {
    fn takes_events(&self) -> bool {
        matches!(self, Self::Listening | Self::Response { takes_events: true, .. })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::event_channel::{StreamReceiver, channel};

    fn open(streams: &mut Streams, id: Option<i64>, kind: StreamKind) -> (u64, StreamReceiver) {
        let (outlet, inlet) = channel(|| ());
        (streams.open(id.map(RpcId::Number), kind, outlet).unwrap(), inlet)
    }

    fn answers(token: Option<i64>, takes_events: bool) -> StreamKind {
        StreamKind::Response { token: token.map(RpcId::Number), takes_events }
    }

    fn target(streams: &Streams, progress: Option<i64>) -> Option<u64> {
        streams.target(progress.map(RpcId::Number).as_ref()).map(|(number, _)| number)
    }

    #[test]
    fn a_message_goes_to_the_newest_stream_that_listens_else_to_the_newest_other() {
        let mut streams = Streams::new();
        assert_eq!(target(&streams, None), None);
        let (first, _a) = open(&mut streams, Some(1), answers(Some(9), true));
        let (second, _b) = open(&mut streams, Some(2), answers(None, true));
        let (_, _c) = open(&mut streams, Some(3), answers(None, false));
        assert_eq!(target(&streams, None), Some(second));
        let (old, _d) = open(&mut streams, None, StreamKind::Listening);
        let (listening, _e) = open(&mut streams, None, StreamKind::Listening);
        let (_, _f) = open(&mut streams, Some(4), answers(None, true));
        assert_eq!(target(&streams, None), Some(listening));
        streams.close(listening);
        assert_eq!(target(&streams, None), Some(old));
        assert_eq!((target(&streams, Some(9)), target(&streams, Some(8))), (Some(first), Some(old)));
    }

    #[test]
    fn an_undelivered_message_is_kept_for_the_next_stream() {
        let mut streams = Streams::new();
        for number in 0..MAX_KEPT + 3 {
            let dropped = streams.keep(Bytes::from(number.to_string()));
            assert_eq!(dropped.len(), usize::from(number >= MAX_KEPT));
        }
        let (_, mut none) = open(&mut streams, Some(1), answers(None, false));
        assert!(none.next().now_or_never().is_none());
        let (_, mut inlet) = open(&mut streams, None, StreamKind::Listening);
        for number in 3..MAX_KEPT + 3 {
            let wanted = StreamEvent::Message(Bytes::from(number.to_string()));
            assert_eq!(inlet.next().now_or_never(), Some(Some(wanted)));
        }
        assert!(inlet.next().now_or_never().is_none());
        assert_eq!(streams.keep(vec![0; MAX_KEPT_BYTES + 1].into()).len(), 1, "too large to be kept");
    }

    #[test]
    fn nothing_follows_an_answer_on_its_stream() {
        let mut streams = Streams::new();
        let (_, _a) = open(&mut streams, Some(1), answers(Some(9), true));
        assert!(streams.complete_request(&RpcId::Number(1)).is_some());
        assert_eq!((target(&streams, None), target(&streams, Some(9))), (None, None));
    }

    #[test]
    fn an_id_is_taken_until_its_answer() {
        let mut streams = Streams::new();
        let (_, _inlet) = open(&mut streams, Some(1), answers(None, true));
        let again = |streams: &mut Streams| streams.open(Some(RpcId::Number(1)), answers(None, true), channel(|| ()).0);
        assert_eq!(again(&mut streams), Err(DuplicateId));
        assert!(
            streams.complete_request(&RpcId::Number(1)).is_some()
                && streams.complete_request(&RpcId::Number(1)).is_none()
        );
        let number = again(&mut streams).unwrap();
        streams.close(number);
        assert!(streams.complete_request(&RpcId::Number(1)).is_none(), "no request waits any more");
    }

    #[test]
    fn the_end_of_a_session_fails_what_is_in_flight() {
        let mut streams = Streams::new();
        let (_, mut asked) = open(&mut streams, Some(1), answers(None, true));
        let (_, mut listening) = open(&mut streams, None, StreamKind::Listening);
        assert!(streams.quiet_since().is_none());
        streams.end(|id| id.to_json().into());
        assert_eq!(asked.next().now_or_never(), Some(Some(StreamEvent::Response { message: "1".into(), status: 200 })));
        assert_eq!(listening.next().now_or_never(), Some(Some(StreamEvent::End)));
        assert!(streams.quiet_since().is_some());
    }
}
