//! Encodes completions: as one JSON object, or as chunks in server-sent events (SSE).

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::stream;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{
    backend::{CompletionError, CompletionRequest, ModelBackend},
    error::ApiError,
};
use crate::{
    models::{Answerer, Usage},
    sse,
    turn::TurnOutcome,
    turn_event::{TurnEvent, next_text},
};

/// Longest wait for the first token before the response header is sent without it. An earlier error becomes an HTTP
/// error, which clients handle better than an error inside a stream; a longer wait could exceed a proxy's timeout for
/// the first byte.
pub(super) const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Fields that all chunks of an answer share.
#[derive(Debug, Clone)]
pub(super) struct CompletionHead {
    id: String,
    created: i64,
    model: String,
}

impl CompletionHead {
    /// Creates the head of an answer by `model` that begins now.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new(model: &str) -> Result<Self, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let id = format!("chatcmpl-{:032x}", u128::from_be_bytes(random));
        Ok(Self { id, created: Timestamp::now().as_second(), model: model.into() })
    }

    fn object(&self, kind: &str, choices: Value) -> Value {
        json!({ "id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices })
    }

    /// Encodes the whole answer to a request of `asked` bytes.
    pub(super) fn completion(&self, outcome: TurnOutcome, asked: usize) -> Value {
        let usage = usage(&outcome, asked);
        let choice = json!({
            "index": 0,
            "message": { "role": "assistant", "content": outcome.text, "refusal": null },
            "logprobs": null,
            "finish_reason": finish_reason(outcome.truncated),
        });
        let mut completion = self.object("chat.completion", json!([choice]));
        completion["usage"] = usage;
        completion
    }

    fn chunk(&self, delta: Value, finish: Option<&str>) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.object("chat.completion.chunk", json!([choice]))
    }
}

/// Responds with a stream of events. A client that disconnects cancels the turn.
///
/// # Errors
/// The turn failed before its first token.
pub(super) async fn stream(
    head: CompletionHead,
    include_usage: bool,
    answers: Arc<dyn ModelBackend>,
    question: CompletionRequest,
) -> Result<Response, ApiError> {
    let (sender, mut tokens) = mpsc::channel(16);
    let asked = question.bytes();
    let turn = tokio::spawn(async move { answers.respond(question, Some(&sender)).await });
    let mut chunks = Chunks { head, include_usage, prompt_bytes: asked, queue: VecDeque::new(), turn: None };
    chunks.push(json!({ "role": "assistant", "content": "" }), None);
    let mut turn = AbortOnDropHandle::new(turn);
    let mut answerer = None;
    match tokio::time::timeout(FIRST_TOKEN_TIMEOUT, first_text(&mut tokens, &mut answerer)).await {
        Ok(Some(token)) => chunks.push(json!({ "content": token }), None),
        Ok(None) => {
            let outcome = (&mut turn).await.map_err(|_| cut_off())??;
            chunks.end(&outcome);
            return Ok(sse::with_model(chunks.respond(), answerer));
        }
        Err(_) => {}
    }
    chunks.turn = Some((tokens, turn));
    Ok(sse::with_model(chunks.respond(), answerer))
}

/// Receives the first piece of the answer, and before it the model that answers.
async fn first_text(events: &mut mpsc::Receiver<TurnEvent>, answerer: &mut Option<Answerer>) -> Option<String> {
    loop {
        match events.recv().await? {
            TurnEvent::Text(text) => return Some(text),
            TurnEvent::Answerer(found) => *answerer = answerer.take().or(Some(found)),
            _ => {}
        }
    }
}

/// Running turn: its events, and its task, which is aborted when dropped.
pub(super) type RunningTurn = (mpsc::Receiver<TurnEvent>, AbortOnDropHandle<Result<TurnOutcome, CompletionError>>);

/// State of the event stream.
struct Chunks {
    head: CompletionHead,
    include_usage: bool,
    /// Bytes of the request's messages.
    prompt_bytes: usize,
    /// Events that are ready to be sent.
    queue: VecDeque<String>,
    /// Source of further events, until the turn has ended.
    turn: Option<RunningTurn>,
}

impl Chunks {
    fn respond(self) -> Response {
        let events = stream::unfold(self, |mut chunks| async move {
            let data = chunks.next().await?;
            Some((Ok::<_, Infallible>(Event::default().data(data)), chunks))
        });
        Sse::new(events).keep_alive(KeepAlive::default()).into_response()
    }

    async fn next(&mut self) -> Option<String> {
        if self.queue.is_empty()
            && let Some((mut tokens, turn)) = self.turn.take()
        {
            if let Some(token) = next_text(&mut tokens).await {
                self.push(json!({ "content": token }), None);
                self.turn = Some((tokens, turn));
            } else {
                match turn.await.map_err(|_| cut_off()).and_then(|outcome| Ok(outcome?)) {
                    Ok(outcome) => self.end(&outcome),
                    Err(error) => self.queue.push_back(error.body().to_string()),
                }
            }
        }
        self.queue.pop_front()
    }

    fn push(&mut self, delta: Value, finish: Option<&str>) {
        let mut chunk = self.head.chunk(delta, finish);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        self.queue.push_back(chunk.to_string());
    }

    fn end(&mut self, outcome: &TurnOutcome) {
        self.push(json!({}), Some(finish_reason(outcome.truncated)));
        if self.include_usage {
            let mut last = self.head.object("chat.completion.chunk", json!([]));
            last["usage"] = usage(outcome, self.prompt_bytes);
            self.queue.push_back(last.to_string());
        }
        self.queue.push_back("[DONE]".into());
    }
}

fn finish_reason(truncated: bool) -> &'static str {
    if truncated { "length" } else { "stop" }
}

/// Returns the token usage: always numbers, because clients rely on them. Without counts of the provider they are
/// estimated at four bytes per token.
pub(super) fn usage_or_estimate(outcome: &TurnOutcome, asked: usize) -> Usage {
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    outcome.usage.unwrap_or_else(|| Usage::new(tokens(asked), tokens(outcome.text.len())))
}

/// Encodes token usage; an estimate is marked as `estimated`.
fn usage(outcome: &TurnOutcome, asked: usize) -> Value {
    let Usage { input, cache_read, cache_write, output, reasoning } = usage_or_estimate(outcome, asked);
    let total = input.saturating_add(output);
    let mut usage = json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": total });
    if cache_read > 0 || cache_write > 0 {
        usage["prompt_tokens_details"] = json!({ "cached_tokens": cache_read, "cache_write_tokens": cache_write });
    }
    if reasoning > 0 {
        usage["completion_tokens_details"] = json!({ "reasoning_tokens": reasoning });
    }
    if outcome.usage.is_none() {
        usage["estimated"] = true.into();
    }
    usage
}

/// Creates the error of a turn whose task ended without an outcome.
pub(super) fn cut_off() -> ApiError {
    ApiError::unavailable("the turn was cut off")
}
