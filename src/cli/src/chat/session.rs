//! Turns with one target.

use std::{
    io::{self, BufRead as _},
    time::Duration,
};

use ::a2a::{A2aInterface, RequestedCall};
use bytes::Bytes;
use crds::agent::{A2A, HTTP};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use sse_stream::SseStream;
use tokio::{signal::ctrl_c, sync::mpsc, time::interval};

use super::{
    chat_target::ChatTarget,
    gateway::{GatewayClient, GatewayResponse},
    reply::{ReplyChunk, full_text, read, refusal, waiting_line},
    screen::ChatScreen,
};
use crate::{
    cluster::UserClient,
    error::{CliError, INSTALL_PAGE},
    exit::Exit,
    output::hint,
    progress::ProgressLine,
    why::{explain_not_ready, summarize},
};

/// Interval at which the progress line is updated.
const TICK: Duration = Duration::from_secs(1);
/// Largest body of a response that is not a stream, in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// End of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEnd {
    Done,
    /// Stopped by Ctrl-C.
    Stopped,
}

/// Knowledge of an agent from turn to turn.
#[derive(Debug, Default)]
pub(super) struct A2aChat {
    /// Interface that its card names, once that was read.
    pub(super) interface: Option<A2aInterface>,
    /// Context of the conversation, once the agent has named it.
    pub(super) context: Option<String>,
    /// Task that waits for the next message.
    pub(super) waiting: Option<String>,
    /// Task of the present turn, while it works.
    pub(super) running: Option<String>,
}

/// Chat of the user with one target.
pub(super) struct ChatSession {
    pub(super) target: ChatTarget,
    pub(super) namespace: String,
    pub(super) gateway: GatewayClient,
    client: Option<UserClient>,
    pub(super) conversation: Option<String>,
    pub(super) screen: ChatScreen,
    /// Set if the target is an agent that speaks Agent2Agent.
    pub(super) a2a: Option<A2aChat>,
}

impl ChatSession {
    /// Returns a chat without turns.
    pub(super) fn new(
        asked: ChatTarget,
        namespace: String,
        gateway: GatewayClient,
        live: Option<UserClient>,
        conversation: Option<String>,
    ) -> Self {
        Self { target: asked, namespace, gateway, client: live, conversation, screen: ChatScreen::new(), a2a: None }
    }

    /// Returns the conversation's id, once the agent has named it.
    pub(super) fn conversation(&self) -> Option<&str> {
        self.conversation.as_deref()
    }

    /// Checks that the target exists, and in which protocol it is talked to, if the caller may read it. Prints at once
    /// why it is not Ready, because the gateway waits for a Pod before it refuses.
    ///
    /// # Errors
    /// [`CliError::Missing`], a usage error if a flow of a FlowSet has to be named, or an agent that speaks a protocol of
    /// its own.
    pub(super) async fn check_target(&mut self) -> Result<(), CliError> {
        let kind = self.target.kind()?;
        let found = match &self.client {
            Some(live) => match live.object(kind, &self.target.name).await {
                Ok(None) => return Err(CliError::missing(live, kind, &self.target.name)),
                found => found.ok().flatten().map(|object| (live, object)),
            },
            None => None,
        };
        if let Some(error) = self.target.lacks_flow(found.as_ref().map(|(_, object)| &object.data)) {
            return Err(error);
        }
        let protocol = found.as_ref().and_then(|(_, object)| object.data.pointer("/spec/protocol")?.as_str());
        if protocol == Some(HTTP) {
            let url = self.gateway.url_of(&format!("{}/", self.target.root(&self.namespace)));
            let text = format!("{} speaks plain HTTP: call it at {url}", self.target.display());
            return Err(CliError::FailedAnswer(text));
        }
        self.a2a = (protocol == Some(A2A)).then(A2aChat::default);
        if let Some((live, object)) = &found {
            for line in explain_not_ready(live, kind, &self.target.name, object).await {
                hint(&line);
            }
        }
        Ok(())
    }

    /// Reads messages and prints their replies until the input ends.
    ///
    /// # Errors
    /// Errors that every further message would have, too.
    pub(super) async fn converse(&mut self) -> Result<Exit, CliError> {
        let shown = self.target.display();
        self.screen.aside(&format!("{shown}: Ctrl-C stops an answer, Ctrl-D ends the conversation"))?;
        let mut lines = typed_lines();
        loop {
            self.screen.prompt();
            let line = tokio::select! {
                line = lines.recv() => line,
                _ = ctrl_c() => None,
            };
            let Some(line) = line else { break };
            if line.trim().is_empty() {
                continue;
            }
            match self.turn(line.trim()).await {
                Ok(TurnEnd::Done) => {}
                Ok(TurnEnd::Stopped) => self.screen.aside("[stopped]")?,
                Err(error) if matches!(error.code(), Exit::Forbidden | Exit::Missing | Exit::Unreachable) => {
                    return Err(error);
                }
                Err(error) if error.is_closed_pipe() => return Err(error),
                Err(error) => hint(&format!("error: {error}")),
            }
        }
        self.screen.aside("")?;
        if let Some(id) = &self.conversation {
            let line = format!("continue with: recif chat {shown} -n {} --conversation {id}", self.namespace);
            self.screen.aside(&line)?;
        }
        Ok(Exit::Done)
    }

    /// Sends a message and prints the reply as it comes.
    ///
    /// # Errors
    /// There is no reply, or it was cut off.
    pub(super) async fn turn(&mut self, message: &str) -> Result<TurnEnd, CliError> {
        let stop = ctrl_c();
        tokio::pin!(stop);
        let turn = tokio::select! {
            turn = self.print_reply(message) => turn.map(|()| TurnEnd::Done),
            _ = &mut stop => Ok(TurnEnd::Stopped),
        };
        if matches!(turn, Ok(TurnEnd::Stopped)) {
            self.cancel_task().await;
        }
        self.screen.end()?;
        turn
    }

    /// Sends a request to the target and prints the reply as it comes.
    ///
    /// # Errors
    /// There is no reply, or it was cut off.
    pub(super) async fn post(&mut self, path: &str, body: String) -> Result<TurnEnd, CliError> {
        let turn = tokio::select! {
            turn = self.print_answer(path, body) => turn.map(|()| TurnEnd::Done),
            _ = ctrl_c() => Ok(TurnEnd::Stopped),
        };
        self.screen.end()?;
        turn
    }

    async fn print_reply(&mut self, message: &str) -> Result<(), CliError> {
        if self.a2a.is_some() {
            return self.print_a2a_reply(message).await;
        }
        let body = self.target.body(message, self.conversation.as_deref()).to_string();
        let path = self.target.path(&self.namespace);
        self.print_answer(&path, body).await
    }

    async fn print_answer(&mut self, path: &str, body: String) -> Result<(), CliError> {
        let mut progress = ProgressLine::begin();
        let what = format!("waiting for {}", self.target.display());
        let answer = with_progress(&mut progress, &what, self.gateway.post(path, body)).await?;
        if !answer.status.is_success() {
            progress.clear();
            return Err(self.refusal_error(answer).await);
        }
        if !answer.is_stream {
            let text = with_progress(&mut progress, &what, read_all(answer.body)).await?;
            progress.clear();
            let (text, conversation) = full_text(&text);
            self.conversation = conversation.or(self.conversation.take());
            return self.screen.text(&text);
        }
        let mut events = std::pin::pin!(SseStream::from_bytes_stream(answer.body.map_err(io::Error::other)));
        loop {
            let event = with_progress(&mut progress, &what, events.next()).await;
            progress.clear();
            let event = match event {
                Some(Ok(event)) => event,
                Some(Err(error)) => return Err(cut_off(&error.to_string())),
                None => return Err(cut_off("it ended without saying so")),
            };
            match read(&event) {
                ReplyChunk::Text(text) => self.screen.text(&text)?,
                ReplyChunk::Call { name, arguments } => self.screen.call(&name, &arguments)?,
                ReplyChunk::Outcome { ok, took_ms } => self.screen.outcome(ok, took_ms)?,
                ReplyChunk::Waiting { task, calls } => {
                    self.note_calls(&calls)?;
                    self.note_waiting(&task)?;
                }
                ReplyChunk::Done { conversation, answered_by } => {
                    self.conversation = conversation.or(self.conversation.take());
                    return answered_by.map_or(Ok(()), |models| self.screen.note(&format!("answered by {models}")));
                }
                ReplyChunk::Failed(error) => {
                    return Err(CliError::FailedAnswer(format!("{} failed: {error}", self.target.display())));
                }
                ReplyChunk::Other => {}
            }
            progress = ProgressLine::begin();
        }
    }

    /// Prints calls that a person is asked to approve.
    pub(super) fn note_calls(&mut self, calls: &[RequestedCall]) -> Result<(), CliError> {
        calls.iter().try_for_each(|call| self.screen.note(&waiting_line(call)))
    }

    /// Prints the command that decides on the calls of a task.
    pub(super) fn note_waiting(&mut self, task: &str) -> Result<(), CliError> {
        let (shown, namespace) = (self.target.display(), &self.namespace);
        self.screen.note(&format!("decide with: recif approve {shown} {task} -n {namespace}"))
    }

    /// Returns the error for a refusal of the gateway or the target.
    pub(super) async fn refusal_error(&self, answer: GatewayResponse) -> CliError {
        let (status, signed, is_refusal) = (answer.status.as_u16(), answer.has_token, answer.is_refusal);
        let text = refusal(&read_all(answer.body).await.unwrap_or_default());
        let shown = self.target.display();
        match status {
            401 if !signed => CliError::Forbidden(no_token(&self.namespace, &text)),
            401 => forbidden(&shown, true, &text),
            403 => forbidden(&shown, is_refusal, &text),
            404 => CliError::NotFound(format!("{shown} was not found: {text}")),
            400..=499 => CliError::FailedAnswer(format!("{shown} refused: {text}")),
            _ => match self.state().await {
                Some(sentence) => CliError::NotReady(format!("{shown} does not answer: {text}\n  {sentence}")),
                None => CliError::FailedAnswer(format!("{shown} does not answer ({status}): {text}")),
            },
        }
    }

    /// Returns the sentence on the target's state if it is not Ready.
    async fn state(&self) -> Option<String> {
        let kind = self.target.kind().ok()?;
        let object = self.client.as_ref()?.object(kind, &self.target.name).await.ok()??;
        let summary = summarize(kind, &object);
        (!summary.ready).then_some(summary.sentence)
    }
}

/// Returns the error for a caller whom the gateway refused (`is_refusal`), or the target itself, whose sentence says what it takes.
fn forbidden(shown: &str, is_refusal: bool, text: &str) -> CliError {
    CliError::Forbidden(match is_refusal {
        true => format!("you may not talk to {shown}: {text}"),
        false => format!("{shown} refused: {text}"),
    })
}

/// Returns what to do where the gateway refuses a request without a token.
fn no_token(namespace: &str, text: &str) -> String {
    let bind = |name: &str, role: &str| {
        format!(
            "\n  kubectl -n {namespace} create rolebinding {name} --clusterrole={role} --serviceaccount={namespace}:me"
        )
    };
    format!(
        "the gateway requires a token, and none was sent: the kubeconfig has none, or the connection is not encrypted \
         ({text}). Make one of an account that may see and call what is there, see {INSTALL_PAGE}#sign-in:\n  \
         kubectl -n {namespace} create serviceaccount me{}{}\n  \
         export RECIF_TOKEN=$(kubectl -n {namespace} create token me --duration 12h)",
        bind("me-sees", "recif-view"),
        bind("me-calls", "recif-invoker"),
    )
}

/// Returns the error of an answer that breaks off.
pub(super) fn cut_off(why: &str) -> CliError {
    CliError::FailedAnswer(format!("the answer was cut off: {why}"))
}

/// Waits for a future, and meanwhile shows the wait in the progress line.
pub(super) async fn with_progress<T>(progress: &mut ProgressLine, what: &str, future: impl Future<Output = T>) -> T {
    tokio::pin!(future);
    let mut ticks = interval(TICK);
    loop {
        tokio::select! {
            done = &mut future => return done,
            _ = ticks.tick() => progress.update(what),
        }
    }
}

/// Reads a body as text, up to [`MAX_ANSWER`].
pub(super) async fn read_all(body: impl Stream<Item = Result<Bytes, String>> + Unpin) -> Result<String, CliError> {
    let mut body = body;
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece.map_err(|error| cut_off(&error))?);
        if bytes.len() > MAX_ANSWER {
            return Err(CliError::FailedAnswer(format!("the answer is longer than {} MiB", MAX_ANSWER >> 20)));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the lines typed; the channel closes at the end of standard input. A thread of its own reads them, because a
/// read cannot be cancelled.
fn typed_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_by_the_gateway_says_that_the_caller_may_not_talk_to_the_target() {
        for (is_refusal, expected) in
            [(true, "you may not talk to agent/clerk: sign in"), (false, "agent/clerk refused: sign in")]
        {
            let error = forbidden("agent/clerk", is_refusal, "sign in");
            assert_eq!((error.to_string().as_str(), error.code()), (expected, Exit::Forbidden));
        }
    }

    #[test]
    fn without_a_token_the_commands_of_the_page_on_it_are_named_for_the_namespace() {
        let text = no_token("team-a", "no token");
        let page = include_str!("../../../../docs/install.md");
        let (_, section) = page.split_once("\n## Sign in\n").unwrap();
        let commands: Vec<_> = section
            .lines()
            .skip_while(|line| !line.starts_with("```"))
            .skip(1)
            .take_while(|line| !line.starts_with("```"))
            .map(|line| line.split("  #").next().unwrap().trim_end().replace("default", "team-a"))
            .collect();
        assert_eq!(commands.len(), 4, "{commands:?}");
        let named: Vec<_> = text.lines().skip(1).map(str::trim).collect();
        assert_eq!(named, commands);
        assert!(text.contains("(no token)") && text.contains("/docs/install.md#sign-in:"), "{text}");
    }
}
