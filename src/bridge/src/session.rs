//! The older era: a session with a child of its own.
//!
//! Messages pass through unchanged, for nobody else speaks with the child. A client that reads slowly slows its own child
//! down and nothing else. The session ends with its child, when its client deletes it, or when nothing happened in it for
//! long; then its child ends, its requests in flight fail, and its name is unknown, upon which clients start anew.

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
    child::{self, Input, Output, Process},
    framing::{Frame, TooLarge},
    memory::{Memory, NO_ROOM},
    message::{self, Id, Message, Outcome},
    outlet::{self, Event, Inlet, Outlet},
    serve::Bridge,
    session_state::{Kind, Streams, Taken},
};

/// How long what a dead child wrote last may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    /// Its name.
    pub(super) id: String,
    input: Input,
    streams: Mutex<Streams>,
    /// The request that opens it, until it is answered.
    opening: Mutex<Option<Id>>,
    memory: Memory,
    over: CancellationToken,
}

/// What a session runs on, until it is run.
pub(super) struct Parts {
    output: Output,
    process: Process,
    slot: OwnedSemaphorePermit,
}

impl Session {
    /// Starts the child of a session that the request `opening` opens. It holds `slot` until its child is gone.
    ///
    /// # Errors
    /// The child cannot be started.
    pub(super) fn start(
        id: String,
        opening: Id,
        bridge: &Bridge,
        slot: OwnedSemaphorePermit,
    ) -> io::Result<(Arc<Self>, Parts)> {
        let (input, output, process) = child::start(&bridge.options.command, &bridge.reaper, &bridge.memory, &id)?;
        let (streams, opening) = (Mutex::new(Streams::new()), Mutex::new(Some(opening)));
        let memory = bridge.memory.clone();
        let session = Self { id, input, streams, opening, memory, over: CancellationToken::new() };
        Ok((Arc::new(session), Parts { output, process, slot }))
    }

    /// Whether it is over, or about to be.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Since when no request of it is in flight; none while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.streams().idle_since()
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.over.cancel();
    }

    /// Opens a stream, for the answer to the request `id` if there is one; the request is yet to be sent. A session whose
    /// opening request nobody waits for any more is over.
    ///
    /// # Errors
    /// The id is taken.
    pub(super) fn stream(self: &Arc<Self>, id: Option<Id>, kind: Kind) -> Result<Inlet, Taken> {
        // The number is known only when the stream is.
        let cell = Arc::new(OnceLock::new());
        let (session, number, asked) = (self.clone(), cell.clone(), id.clone());
        let (outlet, inlet) = outlet::stream(move || {
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

    /// Sends a message to the child; says whether it will be read.
    pub(super) async fn send(&self, line: Bytes) -> bool {
        self.streams().stir();
        self.input.send(line).await
    }

    /// Ends the stream of a request that its client cancelled: children do not answer it, so it would never end.
    pub(super) fn cancelled(&self, id: &Id) {
        let outlet = self.streams().answered(id);
        outlet.iter().for_each(|outlet| outlet.force(Event::End));
    }

    /// Ends the streams that would never end by themselves.
    pub(super) fn end_listening(&self) {
        self.streams().end_listening();
    }

    fn opening(&self) -> MutexGuard<'_, Option<Id>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves it to its end.
    pub(super) async fn run(self: Arc<Self>, bridge: Arc<Bridge>, parts: Parts) {
        let Parts { mut output, mut process, slot } = parts;
        let deaf = process.deaf();
        let why = {
            let reading = async {
                while let Some(frame) = output.next().await {
                    self.take(frame).await;
                }
            };
            tokio::pin!(reading);
            tokio::select! {
                () = &mut reading => "closed its output",
                _ = process.exit() => {
                    // A process that it left may hold the pipe for ever.
                    let _ = timeout(LAST_WORDS, &mut reading).await;
                    "ended by itself"
                }
                () = deaf.cancelled() => {
                    let _ = timeout(LAST_WORDS, &mut reading).await;
                    "takes no input any more"
                }
                () = self.over.cancelled() => "was no longer wanted",
                () = self.idle(bridge.options.idle) => "had nothing to do for too long",
                () = bridge.ended.cancelled() => "ends with the bridge",
            }
        };
        self.over.cancel();
        bridge.sessions.forget(&self.id);
        let failure = |id: &Id| message::error(Some(id), -32000, "the MCP server's session ended").into();
        self.streams().end(failure);
        let exit = process.end(bridge.patience()).await;
        tracing::info!(child = self.id, "the session's MCP server {why}, {exit}");
        drop(slot);
    }

    /// Waits until nothing happened for so long.
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

    /// Passes on what the child said.
    async fn take(&self, frame: Frame) {
        let bytes = match frame {
            Frame::Json(bytes) => bytes,
            Frame::Noise(noise) => return child::tell_noise(&self.id, &noise),
            Frame::TooLarge(lost) => return self.lost(lost, &child::too_large()),
        };
        let Some(share) = self.memory.take(bytes.len()).await else {
            let message = str::from_utf8(&bytes).ok().and_then(|text| Message::read(text).ok());
            return self.lost(TooLarge::of(message), NO_ROOM);
        };
        let bytes = share.hold(bytes);
        let read = str::from_utf8(&bytes).ok().and_then(|text| Message::read(text).ok());
        match read {
            None => child::tell_noise(&self.id, &bytes),
            Some(Message::Answer { id: Some(id), outcome }) => {
                let opens = self.opening().take_if(|opening| *opening == id).is_some();
                let refused = opens && matches!(outcome, Outcome::Error(_));
                let outlet = self.streams().answered(&id);
                self.answer(outlet, bytes).await;
                if refused {
                    self.end();
                }
            }
            Some(Message::Answer { id: None, .. }) => {
                tracing::warn!(child = self.id, "an answer to no request: {}", String::from_utf8_lossy(&bytes));
            }
            Some(Message::Notification { method, params }) => {
                let progress = params.filter(|_| method == "notifications/progress").and_then(message::progress_of);
                self.tell(bytes, progress).await;
            }
            Some(Message::Request { .. }) => self.tell(bytes, None).await,
        }
    }

    async fn answer(&self, outlet: Option<Outlet>, message: Bytes) {
        match outlet {
            Some(outlet) => drop(outlet.send(Event::Answer { message, status: 200 }).await),
            None => tracing::debug!(child = self.id, "an answer that nobody waits for is dropped"),
        }
    }

    /// Gives a message that answers nothing to whoever takes it, or keeps it.
    async fn tell(&self, message: Bytes, progress_of: Option<Id>) {
        loop {
            let target = self.streams().target(progress_of.as_ref());
            let Some((number, outlet)) = target else { break };
            if outlet.send(Event::Message(message.clone())).await {
                return;
            }
            self.streams().close(number);
        }
        let dropped = self.streams().keep(message);
        for message in dropped {
            tracing::warn!(child = self.id, "nobody listens: the oldest of many messages is dropped");
            // The child would wait for its answer.
            if let Some(Message::Request { id, .. }) =
                str::from_utf8(&message).ok().and_then(|text| Message::read(text).ok())
            {
                self.input.force(message::line(message::error(Some(&id), -32000, "no client listens")));
            }
        }
    }

    /// Tells whoever waits for a message that it is not passed on.
    fn lost(&self, TooLarge { id, asks }: TooLarge, why: &str) {
        tracing::warn!(child = self.id, "{why}");
        let Some(id) = id else { return };
        let message = message::error(Some(&id), -32603, why);
        if asks {
            return self.input.force(message::line(message));
        }
        // That is an answer, too.
        self.opening().take_if(|opening| *opening == id);
        if let Some(outlet) = self.streams().answered(&id) {
            outlet.force(Event::Answer { message: message.into(), status: 200 });
        }
    }
}
