//! The newer era: one child for all requests, started on first use.
//!
//! When it dies, requests in flight fail, the Pod is unready, and another child is started after an exponential
//! back-off: no client could request one while the Pod is unready. The Pod is ready again when the new child has lived
//! for a moment. The era has no state that a client would have to set up again.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::{
    child::{self, ChildInput, ChildOutput, ChildProcess},
    child_log,
    event_channel::{self, StreamEvent, StreamReceiver, StreamSender, TrySendError},
    framing::{Frame, UndeliveredMessage},
    memory::{MemoryBudget, NO_ROOM},
    message::{self, Message, RpcId},
    resources::Resources,
    rewrite,
    stateless_state::{Delivery, PendingRequest, PendingRequests},
};

/// Most requests in flight; more would only take more memory.
const MAX_IN_FLIGHT: usize = 1024;
/// Back-off before the first new child, and the longest one.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Lifetime after which a child counts as working, and after which the back-off begins anew.
const HEALTHY_AFTER: Duration = Duration::from_secs(1);
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(60);

/// Child that all requests of the newer era share.
#[derive(Debug, Default)]
pub(super) struct StatelessChild {
    state: Mutex<StatelessState>,
}

#[derive(Debug, Default)]
struct StatelessState {
    requests: PendingRequests,
    child: ChildState,
    /// Reason why the last child was not started.
    cause: Option<Arc<str>>,
}

#[derive(Debug, Default)]
enum ChildState {
    /// Not requested yet.
    #[default]
    None,
    /// Running; not proven yet if earlier ones died.
    Running { input: ChildInput, proven: bool },
    /// Died; another one is about to be started.
    Died,
}

/// Reason for which a request cannot be taken now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnavailableError {
    /// No child is running.
    #[error("the MCP server ended and is being started again")]
    Died,
    /// The system cannot start a child.
    #[error("the MCP server cannot be started: {0}")]
    NotStarted(Arc<str>),
    /// Too many requests are in flight.
    #[error("the MCP server has too many requests in flight")]
    Full,
    /// The memory budget has no room.
    #[error("{NO_ROOM}")]
    NoRoom,
}

/// Request of the newer era.
pub(super) struct StatelessRequest<'a> {
    pub(super) id: RpcId,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawValue>,
    pub(super) token: Option<RpcId>,
    pub(super) wants_log: bool,
}

impl StatelessChild {
    /// Returns the reason for which no requests can be taken, if there is one.
    pub(super) fn unready(&self) -> Option<UnavailableError> {
        let state = self.state();
        match state.child {
            ChildState::None | ChildState::Running { proven: true, .. } => None,
            ChildState::Died | ChildState::Running { .. } => Some(state.unavailable_error()),
        }
    }

    /// Records that the child of a session could not be started: the shared one could not be, either. Starting it is
    /// retried until it succeeds, and the Pod is unready meanwhile.
    pub(super) fn not_started(self: &Arc<Self>, error: std::io::Error, resources: &Arc<Resources>) {
        let mut state = self.state();
        if let ChildState::None = state.child {
            state.not_started(self, resources, error);
        }
    }

    /// Sends a request to the child, and returns the stream of its events. Dropping the stream cancels the request.
    ///
    /// # Errors
    /// The request cannot be taken now; nothing was sent.
    pub(super) async fn send_request(
        self: &Arc<Self>,
        ask: StatelessRequest<'_>,
        resources: &Arc<Resources>,
    ) -> Result<StreamReceiver, UnavailableError> {
        // The length before the number is known, which takes a few bytes.
        let length = ask.method.len() + ask.params.map_or(0, |params| params.get().len()) + 100;
        let share = resources.memory.try_acquire(length).ok_or(UnavailableError::NoRoom)?;
        let (number, inlet, input) = {
            let mut state = self.state();
            if state.requests.count() >= MAX_IN_FLIGHT {
                return Err(UnavailableError::Full);
            }
            let input = state.input(self, resources)?;
            // The number is known only once the stream exists.
            let cell = Arc::new(OnceLock::new());
            let (shared, number) = (self.clone(), cell.clone());
            let (outlet, inlet) = event_channel::channel(move || shared.cancel_abandoned(number.get().copied()));
            let StatelessRequest { id, token, wants_log, .. } = &ask;
            let listens = ask.method == "subscriptions/listen";
            let (id, token, wants_log) = (id.clone(), token.clone(), *wants_log);
            let number =
                state.requests.begin(PendingRequest { id, token, is_subscription: listens, wants_log, sender: outlet });
            let _ = cell.set(number);
            (number, inlet, input)
        };
        let line = rewrite::request(number, ask.method, ask.params, ask.token.is_some());
        // A child that is gone by now fails this request like any other one.
        input.send(share.attach(message::line(line))).await;
        Ok(inlet)
    }

    /// Ends the streams that would never end by themselves.
    pub(super) fn end_subscriptions(&self) {
        self.state().requests.end_subscriptions();
    }

    /// Cancels a request whose client has closed its stream.
    fn cancel_abandoned(&self, number: Option<i64>) {
        let mut state = self.state();
        if let Some(number) = number
            && state.requests.end(number)
            && let ChildState::Running { input, .. } = &state.child
        {
            input.force(message::line(rewrite::cancellation(number)));
        }
    }

    fn state(&self) -> MutexGuard<'_, StatelessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one child after another, beginning with `first`.
    async fn supervise(
        self: Arc<Self>,
        resources: Arc<Resources>,
        first: std::io::Result<(ChildInput, ChildOutput, ChildProcess)>,
    ) {
        let mut next = first;
        let mut pause = MIN_BACKOFF;
        loop {
            let began = Instant::now();
            match next {
                Ok((input, output, process)) => {
                    let why = self.run(&resources, &input, output, process).await;
                    if resources.children_end.is_cancelled() {
                        return;
                    }
                    tracing::warn!(child = "shared", "the MCP server ended {why}");
                }
                Err(error) => tracing::error!(child = "shared", "start the MCP server: {error}"),
            }
            pause = if began.elapsed() >= BACKOFF_RESET_AFTER { MIN_BACKOFF } else { pause };
            tokio::select! {
                () = sleep(pause) => {}
                () = resources.children_end.cancelled() => return,
            }
            pause = (2 * pause).min(MAX_BACKOFF);
            next = child::start(&resources.options.command, &resources.reaper, &resources.memory, "shared");
            let mut state = self.state();
            match &next {
                Ok((input, ..)) => {
                    (state.child, state.cause) = (ChildState::Running { input: input.clone(), proven: false }, None)
                }
                Err(error) => state.cause = Some(error.to_string().into()),
            }
        }
    }

    /// Serves one child until it ends; returns a text on its exit.
    async fn run(
        &self,
        resources: &Resources,
        input: &ChildInput,
        mut output: ChildOutput,
        mut process: ChildProcess,
    ) -> String {
        let began = Instant::now();
        let unresponsive = process.unresponsive();
        {
            let reading = async {
                while let Some(frame) = output.next().await {
                    self.handle_frame(frame, input, &resources.memory);
                }
            };
            let proving = async {
                sleep(HEALTHY_AFTER).await;
                if let ChildState::Running { proven, .. } = &mut self.state().child {
                    *proven = true;
                }
                std::future::pending::<()>().await;
            };
            tokio::pin!(reading);
            tokio::select! {
                () = &mut reading => {}
                _ = process.exit() => {
                    // Its last output may still be in the pipe; a process that it left behind may keep the pipe open
                    // for ever.
                    let _ = timeout(HEALTHY_AFTER, &mut reading).await;
                }
                () = unresponsive.cancelled() => {
                    tracing::warn!(child = "shared", "it takes no input any more");
                    let _ = timeout(HEALTHY_AFTER, &mut reading).await;
                }
                () = resources.children_end.cancelled() => {}
                () = proving => {}
            }
        }
        let requests = {
            let mut state = self.state();
            state.child = ChildState::Died;
            state.requests.drain()
        };
        for asked in requests {
            let message =
                message::error_message(Some(&asked.id), -32000, "the MCP server ended before it answered").into();
            asked.sender.force(StreamEvent::Response { message, status: 200 });
        }
        let exit = process.end(resources.stop_timeout()).await;
        format!("{exit} after {} s", began.elapsed().as_secs())
    }

    /// Forwards output of the child. Never waits: a client that does not read loses its stream.
    fn handle_frame(&self, frame: Frame, input: &ChildInput, memory: &MemoryBudget) {
        let text = match &frame {
            Frame::Json(bytes) => str::from_utf8(bytes).ok(),
            Frame::Noise(noise) => return child_log::log_noise("shared", noise),
            Frame::TooLarge(lost) => return self.report_undelivered(lost, input, &child::too_large_message()),
        };
        let Some(message) = text.and_then(|text| Message::read(text).ok()) else {
            return child_log::log_noise("shared", text.unwrap_or_default().as_bytes());
        };
        let share = text.and_then(|text| memory.try_acquire(text.len()));
        let Some(share) = share else {
            return self.report_undelivered(&UndeliveredMessage::from_message(Some(message)), input, NO_ROOM);
        };
        let delivery = self.state().requests.deliver(message);
        match delivery {
            Delivery::Client(number, outlet, event) => self.deliver(number, &outlet, event.with_permit(share)),
            Delivery::Child(line) => input.force(message::line(line)),
            Delivery::Dropped(what) => tracing::debug!(child = "shared", "{what} is dropped"),
        }
    }

    fn deliver(&self, number: i64, outlet: &StreamSender, event: StreamEvent) {
        // A response is the last event, so there is at most one over the bound.
        if matches!(event, StreamEvent::Response { .. } | StreamEvent::End) {
            return outlet.force(event);
        }
        if outlet.try_send(event) == Err(TrySendError::Full) {
            tracing::warn!(child = "shared", "a client does not read: its stream is broken off");
            self.cancel_abandoned(Some(number));
        }
    }

    /// Reports to the sender of the request, or to the child, that a message is not passed on.
    fn report_undelivered(&self, lost: &UndeliveredMessage, input: &ChildInput, why: &str) {
        tracing::warn!(child = "shared", "{why}");
        let Some(id) = &lost.id else { return };
        if lost.is_request {
            return input.force(message::line(message::error_message(Some(id), -32603, why)));
        }
        let answer = self.state().requests.fail(id, why);
        if let Some((outlet, event)) = answer {
            outlet.force(event);
        }
    }
}

impl StatelessState {
    /// Returns the reason for which no child takes requests.
    fn unavailable_error(&self) -> UnavailableError {
        self.cause.clone().map_or(UnavailableError::Died, UnavailableError::NotStarted)
    }

    fn not_started(&mut self, shared: &Arc<StatelessChild>, resources: &Arc<Resources>, error: std::io::Error) {
        (self.child, self.cause) = (ChildState::Died, Some(error.to_string().into()));
        resources.tasks.spawn(shared.clone().supervise(resources.clone(), Err(error)));
    }

    /// Returns the input of the child; the first request starts it.
    fn input(
        &mut self,
        shared: &Arc<StatelessChild>,
        resources: &Arc<Resources>,
    ) -> Result<ChildInput, UnavailableError> {
        match &self.child {
            ChildState::Running { input, .. } => return Ok(input.clone()),
            ChildState::Died => return Err(self.unavailable_error()),
            ChildState::None => {}
        }
        match child::start(&resources.options.command, &resources.reaper, &resources.memory, "shared") {
            Ok(started) => {
                let input = started.0.clone();
                self.child = ChildState::Running { input: input.clone(), proven: true };
                resources.tasks.spawn(shared.clone().supervise(resources.clone(), Ok(started)));
                Ok(input)
            }
            Err(error) => {
                self.not_started(shared, resources, error);
                Err(self.unavailable_error())
            }
        }
    }
}
