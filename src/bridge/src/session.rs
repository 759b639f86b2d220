//! Session of the older era, with a child of its own.
//!
//! Messages pass through unchanged, because no other client uses the child. A client that reads slowly slows down its
//! own child only. The session ends with its child, when its client deletes it, or when it was idle for too long. Then
//! the child ends, requests in flight fail, and the session's id becomes unknown, so clients begin a new session.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    child::{self, ChildInput, ChildOutput, ChildProcess},
    child_log,
    event_channel::{self, StreamEvent, StreamReceiver, StreamSender},
    framing::{Frame, UndeliveredMessage},
    memory::{MemoryBudget, NO_ROOM},
    message::{self, Message, RpcId, RpcOutcome},
    resources::Resources,
    session_state::{DuplicateId, StreamKind, Streams},
};

/// Longest time to read the last output of a child that has ended.
const FINAL_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Session of a client with its child.
#[derive(Debug)]
pub(super) struct ChildSession {
    /// Id of the session.
    pub(super) id: String,
    input: ChildInput,
    streams: Mutex<Streams>,
    /// Id of the request that opens the session, until it is answered.
    opening: Mutex<Option<RpcId>>,
    memory: MemoryBudget,
    over: CancellationToken,
}

/// Parts that [`ChildSession::run`] needs.
pub(super) struct SessionParts {
    output: ChildOutput,
    process: ChildProcess,
    slot: OwnedSemaphorePermit,
}

impl ChildSession {
    /// Starts the child of a session that the request `opening` opens. The session holds `slot` until its child is
    /// gone.
    ///
    /// # Errors
    /// The child cannot be started.
    pub(super) fn start(
        id: String,
        opening: RpcId,
        resources: &Resources,
        slot: OwnedSemaphorePermit,
    ) -> io::Result<(Arc<Self>, SessionParts)> {
        let (input, output, process) =
            child::start(&resources.options.command, &resources.reaper, &resources.memory, &id)?;
        let (streams, opening) = (Mutex::new(Streams::new()), Mutex::new(Some(opening)));
        let memory = resources.memory.clone();
        let session = Self { id, input, streams, opening, memory, over: CancellationToken::new() };
        Ok((Arc::new(session), SessionParts { output, process, slot }))
    }

    /// Reports whether the session is over, or about to be.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Returns the time since which no request of the session is in flight; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.streams().idle_since()
    }

    /// Ends the session.
    pub(super) fn end(&self) {
        self.over.cancel();
    }

    /// Opens a stream, for the response to the request `id` if there is one; the request is yet to be sent. A session
    /// ends if the client abandons its opening request.
    ///
    /// # Errors
    /// The id is in use.
    pub(super) fn stream(self: &Arc<Self>, id: Option<RpcId>, kind: StreamKind) -> Result<StreamReceiver, DuplicateId> {
        // The number is known only once the stream exists.
        let cell = Arc::new(OnceLock::new());
        let (session, number, asked) = (self.clone(), cell.clone(), id.clone());
        let (outlet, inlet) = event_channel::channel(move || {
            let Some(number) = number.get() else { return };
            session.streams().close(*number);
            if asked.is_some() && *session.opening() == asked {
                session.over.cancel();
            }
        });
        let number = self.streams().open(id, kind, outlet)?;
        let _ = cell.set(number);
        Ok(inlet)
    }

    /// Sends a message to the child; returns whether the child's input is still open.
    pub(super) async fn send(&self, line: Bytes) -> bool {
        self.streams().touch();
        self.input.send(line).await
    }

    /// Ends the stream of a request that its client cancelled: children do not answer it, so the stream would never
    /// end.
    pub(super) fn cancel_request(&self, id: &RpcId) {
        let outlet = self.streams().complete_request(id);
        outlet.iter().for_each(|outlet| outlet.force(StreamEvent::End));
    }

    /// Ends the streams that would never end by themselves.
    pub(super) fn end_listening(&self) {
        self.streams().end_listening();
    }

    fn opening(&self) -> MutexGuard<'_, Option<RpcId>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the session until it ends.
    pub(super) async fn run(&self, resources: &Resources, parts: SessionParts) {
        let SessionParts { mut output, mut process, slot } = parts;
        let unresponsive = process.unresponsive();
        let why = {
            let reading = async {
                while let Some(frame) = output.next().await {
                    self.handle_frame(frame).await;
                }
            };
            tokio::pin!(reading);
            tokio::select! {
                () = &mut reading => "closed its output",
                _ = process.exit() => {
                    // A process that the child has left behind may keep the pipe open for ever.
                    let _ = timeout(FINAL_OUTPUT_TIMEOUT, &mut reading).await;
                    "ended by itself"
                }
                () = unresponsive.cancelled() => {
                    let _ = timeout(FINAL_OUTPUT_TIMEOUT, &mut reading).await;
                    "takes no input any more"
                }
                () = self.over.cancelled() => "was no longer wanted",
                () = self.idle(resources.options.idle) => "had nothing to do for too long",
                () = resources.children_end.cancelled() => "ends with the bridge",
            }
        };
        self.over.cancel();
        let failure = |id: &RpcId| message::error_message(Some(id), -32000, "the MCP server's session ended").into();
        self.streams().end(failure);
        let exit = process.end(resources.stop_timeout()).await;
        tracing::info!(child = self.id, "the session's MCP server {why}, {exit}");
        drop(slot);
    }

    /// Waits until the session was idle for this long.
    async fn idle(&self, longest: Duration) {
        loop {
            let now = Instant::now();
            let quiet_since = self.streams().quiet_since().unwrap_or(now);
            if now >= quiet_since + longest {
                return;
            }
            sleep_until(quiet_since + longest).await;
        }
    }

    /// Forwards output of the child.
    async fn handle_frame(&self, frame: Frame) {
        let bytes = match frame {
            Frame::Json(bytes) => bytes,
            Frame::Noise(noise) => return child_log::log_noise(&self.id, &noise),
            Frame::TooLarge(lost) => return self.report_undelivered(lost, &child::too_large_message()),
        };
        let Some(share) = self.memory.acquire(bytes.len()).await else {
            let message = str::from_utf8(&bytes).ok().and_then(|text| Message::read(text).ok());
            return self.report_undelivered(UndeliveredMessage::from_message(message), NO_ROOM);
        };
        let bytes = share.attach(bytes);
        let read = str::from_utf8(&bytes).ok().and_then(|text| Message::read(text).ok());
        match read {
            None => child_log::log_noise(&self.id, &bytes),
            Some(Message::Response { id: Some(id), outcome }) => {
                let opens = self.opening().take_if(|opening| *opening == id).is_some();
                let refused = opens && matches!(outcome, RpcOutcome::Error(_));
                let outlet = self.streams().complete_request(&id);
                self.respond(outlet, bytes).await;
                if refused {
                    self.end();
                }
            }
            Some(Message::Response { id: None, .. }) => {
                tracing::warn!(child = self.id, "an answer to no request: {}", String::from_utf8_lossy(&bytes));
            }
            Some(Message::Notification { method, params }) => {
                let progress = params.filter(|_| method == "notifications/progress").and_then(message::progress_of);
                self.forward_or_keep(bytes, progress).await;
            }
            Some(Message::Request { .. }) => self.forward_or_keep(bytes, None).await,
        }
    }

    async fn respond(&self, outlet: Option<StreamSender>, message: Bytes) {
        match outlet {
            Some(outlet) => drop(outlet.send(StreamEvent::Response { message, status: 200 }).await),
            None => tracing::debug!(child = self.id, "an answer that no request waits for is dropped"),
        }
    }

    /// Forwards a message that answers no request to a stream that takes it, or keeps it.
    async fn forward_or_keep(&self, message: Bytes, progress_of: Option<RpcId>) {
        loop {
            let target = self.streams().target(progress_of.as_ref());
            let Some((number, outlet)) = target else { break };
            if outlet.send(StreamEvent::Message(message.clone())).await {
                return;
            }
            self.streams().close(number);
        }
        let dropped = self.streams().keep(message);
        for message in dropped {
            tracing::warn!(child = self.id, "no client listens: the oldest of many messages is dropped");
            // The child would wait for its answer.
            if let Some(Message::Request { id, .. }) =
                str::from_utf8(&message).ok().and_then(|text| Message::read(text).ok())
            {
                self.input.force(message::line(message::error_message(Some(&id), -32000, "no client listens")));
            }
        }
    }

    /// Reports to the sender of the request, or to the child, that a message is not passed on.
    fn report_undelivered(&self, UndeliveredMessage { id, is_request: asks }: UndeliveredMessage, why: &str) {
        tracing::warn!(child = self.id, "{why}");
        let Some(id) = id else { return };
        let message = message::error_message(Some(&id), -32603, why);
        if asks {
            return self.input.force(message::line(message));
        }
        // That error is a response, too.
        self.opening().take_if(|opening| *opening == id);
        if let Some(outlet) = self.streams().complete_request(&id) {
            outlet.force(StreamEvent::Response { message: message.into(), status: 200 });
        }
    }
}
