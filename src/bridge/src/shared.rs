//! The newer era: one child for all requests, started on first use.
//!
//! When it dies, requests in flight fail, the Pod is unready, and another child is started after a pause that doubles as
//! long as they keep dying: nobody could ask for one while the Pod is unready. The Pod is ready again when the new child
//! has lived for a moment. The era has no state that a client would have to set up again.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::{
    child::{self, Input, Output, Process},
    framing::{Frame, TooLarge},
    memory::{Memory, NO_ROOM},
    message::{self, Id, Message},
    outlet::{self, Event, Inlet, Outlet, Refused},
    rewrite,
    serve::Bridge,
    shared_state::{Asked, Delivery, Requests},
};

/// Requests at the same time at most; more would only be more memory.
const AT_ONCE: usize = 1024;
/// The pause before the first new child, and the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A child that lived for so long works; one that lived for so long after a death worked well.
const WORKS: Duration = Duration::from_secs(1);
const WORKED_WELL: Duration = Duration::from_secs(60);

/// The shared child.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: Requests,
    child: Child,
    /// Why the last child was not started.
    cause: Option<Arc<str>>,
}

#[derive(Debug, Default)]
enum Child {
    /// Nobody asked for it yet.
    #[default]
    None,
    /// It is there; unproven if others died before.
    Runs { input: Input, proven: bool },
    /// It died, and another is about to be started.
    Died,
}

/// A request that cannot be taken now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unable {
    /// There is no child.
    #[error("the MCP server ended and is being started again")]
    Died,
    /// The system does not start one.
    #[error("the MCP server cannot be started: {0}")]
    NotStarted(Arc<str>),
    /// There are too many.
    #[error("the MCP server has too many requests in flight")]
    Full,
    /// There is no room for it.
    #[error("{NO_ROOM}")]
    NoRoom,
}

/// What a request of the newer era asks for.
pub(super) struct Ask<'a> {
    pub(super) id: Id,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawValue>,
    pub(super) token: Option<Id>,
    pub(super) wants_log: bool,
}

impl Shared {
    /// Why no requests can be taken, if so.
    pub(super) fn unready(&self) -> Option<Unable> {
        let state = self.state();
        match state.child {
            Child::None | Child::Runs { proven: true, .. } => None,
            Child::Died | Child::Runs { .. } => Some(state.died()),
        }
    }

    /// A child of a session was not started: neither would another one be. It is tried again and again until one is, and the
    /// Pod is unready meanwhile.
    pub(super) fn not_started(self: &Arc<Self>, error: std::io::Error, bridge: &Arc<Bridge>) {
        let mut state = self.state();
        if let Child::None = state.child {
            state.not_started(self, bridge, error);
        }
    }

    /// Sends a request to the child, and gives what comes back. A client that drops it cancels the request.
    ///
    /// # Errors
    /// It cannot be taken now; nothing was sent.
    pub(super) async fn ask(self: &Arc<Self>, ask: Ask<'_>, bridge: &Arc<Bridge>) -> Result<Inlet, Unable> {
        // Before its number is known: that is as long as a few bytes.
        let length = ask.method.len() + ask.params.map_or(0, |params| params.get().len()) + 100;
        let share = bridge.memory.try_take(length).ok_or(Unable::NoRoom)?;
        let (number, inlet, input) = {
            let mut state = self.state();
            if state.requests.count() >= AT_ONCE {
                return Err(Unable::Full);
            }
            let input = state.input(self, bridge)?;
            // The number is known only when the stream is.
            let cell = Arc::new(OnceLock::new());
            let (shared, number) = (self.clone(), cell.clone());
            let (outlet, inlet) = outlet::stream(move || shared.left(number.get().copied()));
            let Ask { id, token, wants_log, .. } = &ask;
            let listens = ask.method == "subscriptions/listen";
            let (id, token, wants_log) = (id.clone(), token.clone(), *wants_log);
            let number = state.requests.begin(Asked { id, token, listens, wants_log, outlet });
            let _ = cell.set(number);
            (number, inlet, input)
        };
        let line = rewrite::request(number, ask.method, ask.params, ask.token.is_some());
        // A child that is gone by now fails the request like any other.
        input.send(share.hold(message::line(line))).await;
        Ok(inlet)
    }

    /// Ends the streams that would never end by themselves.
    pub(super) fn end_subscriptions(&self) {
        self.state().requests.end_subscriptions();
    }

    /// A client takes nothing more of that request.
    fn left(&self, number: Option<i64>) {
        let mut state = self.state();
        if let Some(number) = number
            && state.requests.end(number)
            && let Child::Runs { input, .. } = &state.child
        {
            input.force(message::line(rewrite::cancel(number)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one child after the other, from a first one on.
    async fn supervise(self: Arc<Self>, bridge: Arc<Bridge>, first: std::io::Result<(Input, Output, Process)>) {
        let mut next = first;
        let mut pause = PAUSE;
        loop {
            let began = Instant::now();
            match next {
                Ok((input, output, process)) => {
                    let why = self.run(&bridge, &input, output, process).await;
                    if bridge.ended.is_cancelled() {
                        return;
                    }
                    tracing::warn!(child = "shared", "the MCP server ended {why}");
                }
                Err(error) => tracing::error!(child = "shared", "start the MCP server: {error}"),
            }
            pause = if began.elapsed() >= WORKED_WELL { PAUSE } else { pause };
            tokio::select! {
                () = sleep(pause) => {}
                () = bridge.ended.cancelled() => return,
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
            next = child::start(&bridge.options.command, &bridge.reaper, &bridge.memory, "shared");
            let mut state = self.state();
            match &next {
                Ok((input, ..)) => {
                    (state.child, state.cause) = (Child::Runs { input: input.clone(), proven: false }, None)
                }
                Err(error) => state.cause = Some(error.to_string().into()),
            }
        }
    }

    /// Serves one child to its end; how it ended.
    async fn run(&self, bridge: &Bridge, input: &Input, mut output: Output, mut process: Process) -> String {
        let began = Instant::now();
        let deaf = process.deaf();
        {
            let reading = async {
                while let Some(frame) = output.next().await {
                    self.take(frame, input, &bridge.memory);
                }
            };
            let proving = async {
                sleep(WORKS).await;
                if let Child::Runs { proven, .. } = &mut self.state().child {
                    *proven = true;
                }
                std::future::pending::<()>().await;
            };
            tokio::pin!(reading);
            tokio::select! {
                () = &mut reading => {}
                _ = process.exit() => {
                    // What it wrote last may still be on its way; a process that it left may hold the pipe for ever.
                    let _ = timeout(WORKS, &mut reading).await;
                }
                () = deaf.cancelled() => {
                    tracing::warn!(child = "shared", "it takes no input any more");
                    let _ = timeout(WORKS, &mut reading).await;
                }
                () = bridge.ended.cancelled() => {}
                () = proving => {}
            }
        }
        let requests = {
            let mut state = self.state();
            state.child = Child::Died;
            state.requests.take()
        };
        for asked in requests {
            let message = message::error(Some(&asked.id), -32000, "the MCP server ended before it answered").into();
            asked.outlet.force(Event::Answer { message, status: 200 });
        }
        let exit = process.end(bridge.patience()).await;
        format!("{exit} after {} s", began.elapsed().as_secs())
    }

    /// Passes on what the child said. Never waits: a client that does not read loses its stream.
    fn take(&self, frame: Frame, input: &Input, memory: &Memory) {
        let text = match &frame {
            Frame::Json(bytes) => str::from_utf8(bytes).ok(),
            Frame::Noise(noise) => return child::tell_noise("shared", noise),
            Frame::TooLarge(lost) => return self.lost(lost, input, &child::too_large()),
        };
        let Some(message) = text.and_then(|text| Message::read(text).ok()) else {
            return child::tell_noise("shared", text.unwrap_or_default().as_bytes());
        };
        let share = text.and_then(|text| memory.try_take(text.len()));
        let Some(share) = share else { return self.lost(&TooLarge::of(Some(message)), input, NO_ROOM) };
        let delivery = self.state().requests.deliver(message);
        match delivery {
            Delivery::Client(number, outlet, event) => self.give(number, &outlet, event.held(share)),
            Delivery::Child(line) => input.force(message::line(line)),
            Delivery::Nobody(what) => tracing::debug!(child = "shared", "{what} is dropped"),
        }
    }

    fn give(&self, number: i64, outlet: &Outlet, event: Event) {
        // An answer is the last thing, so there is never more than one too many.
        if matches!(event, Event::Answer { .. } | Event::End) {
            return outlet.force(event);
        }
        if outlet.offer(event) == Err(Refused::Full) {
            tracing::warn!(child = "shared", "a client does not read: its stream is broken off");
            self.left(Some(number));
        }
    }

    /// Tells whoever waits for a message that it is not passed on.
    fn lost(&self, lost: &TooLarge, input: &Input, why: &str) {
        tracing::warn!(child = "shared", "{why}");
        let Some(id) = &lost.id else { return };
        if lost.asks {
            return input.force(message::line(message::error(Some(id), -32603, why)));
        }
        let answer = self.state().requests.lost(id, why);
        if let Some((outlet, event)) = answer {
            outlet.force(event);
        }
    }
}

impl State {
    /// Why there is no child that takes requests.
    fn died(&self) -> Unable {
        self.cause.clone().map_or(Unable::Died, Unable::NotStarted)
    }

    fn not_started(&mut self, shared: &Arc<Shared>, bridge: &Arc<Bridge>, error: std::io::Error) {
        (self.child, self.cause) = (Child::Died, Some(error.to_string().into()));
        bridge.tasks.spawn(shared.clone().supervise(bridge.clone(), Err(error)));
    }

    /// The child's input; the first to ask starts it.
    fn input(&mut self, shared: &Arc<Shared>, bridge: &Arc<Bridge>) -> Result<Input, Unable> {
        match &self.child {
            Child::Runs { input, .. } => return Ok(input.clone()),
            Child::Died => return Err(self.died()),
            Child::None => {}
        }
        match child::start(&bridge.options.command, &bridge.reaper, &bridge.memory, "shared") {
            Ok(started) => {
                let input = started.0.clone();
                self.child = Child::Runs { input: input.clone(), proven: true };
                bridge.tasks.spawn(shared.clone().supervise(bridge.clone(), Ok(started)));
                Ok(input)
            }
            Err(error) => {
                self.not_started(shared, bridge, error);
                Err(self.died())
            }
        }
    }
}
