//! `POST /v1/responses`: the answer to `input`, as one JSON object or as events.
//!
//! A response of an agent is kept in a conversation unless `store` is false, and `previous_response_id` goes on with that
//! conversation: its messages come before `input`. Only the last response of a conversation can be continued, and only once: of
//! two that continue it at the same time, one gets 409. A flow keeps nothing. Instructions are for one response and are never kept.
//!
//! Tools are called by this runtime. Their calls are shown as items of type `mcp_call`, OpenAI's form for tools that a
//! client need not run.

mod head;
mod id;
mod input;
mod output;
mod request;
mod stream;

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use crds::agent::NO_RESPONSE_BY_ID;
use tokio::sync::mpsc;

use self::{head::ResponseHead, id::ResponseId, output::Output, request::ResponseRequest};
use super::{
    Api, ApiError,
    backend::{CompletionError, CompletionRequest, ModelBackend},
};
use crate::{
    agent::TurnRecord,
    caller::CallerContext,
    conversations::history::{ConversationId, StoredConversation},
    models::Message,
    sse,
};

/// Responds to `POST /v1/responses`.
pub(super) async fn create(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    api.backend()?;
    let request = ResponseRequest::read(&body?)?;
    let answers = api.backend_for(&request.model)?;
    let caller = CallerContext::from_headers(headers);
    let stream = request.stream;
    let (head, question) = prepare(request, caller, &*answers).await?;
    if stream {
        return stream::respond(head, answers, question).await;
    }
    let asked = question.bytes();
    let mut output = Output::new(head.item_suffix(), &question.model);
    let (sender, mut events) = mpsc::channel(16);
    // The sender is dropped with the turn, which ends the loop.
    let turn = async move { answers.respond(question, Some(&sender)).await };
    let collect = async {
        while let Some(event) = events.recv().await {
            output.push(event);
            output.take_events();
        }
    };
    let (outcome, ()) = futures::join!(turn, collect);
    let outcome = outcome?;
    output.end(outcome.truncated);
    let answerer = outcome.answerers.first().cloned();
    Ok(sse::with_model(Json(head.finished(&output, &outcome, asked)).into_response(), answerer))
}

/// Refuses to read, cancel or delete a response by its id: usage, settings and items of a response are not stored.
pub(super) async fn refuse_by_id() -> ApiError {
    ApiError::with_status(StatusCode::NOT_FOUND, NO_RESPONSE_BY_ID)
}

/// Loads the conversation that the request continues, and builds the question for the backend.
async fn prepare(
    request: ResponseRequest,
    caller: CallerContext,
    answers: &dyn ModelBackend,
) -> Result<(ResponseHead, CompletionRequest), ApiError> {
    let keeps = answers.keeps_conversations();
    for (name, asked) in [("previous_response_id", request.previous.is_some()), ("store", request.store == Some(true))]
    {
        if asked && !keeps {
            let text = format!("a flow keeps no conversations: leave `{name}` out, and send all messages as `input`");
            return Err(ApiError::invalid(Some(name), text));
        }
    }
    let (conversation, known) = match &request.previous {
        None => (ConversationId::random().map_err(no_random)?, StoredConversation::default()),
        Some(text) => continued(text, &caller, answers).await?,
    };
    let turns = request.previous.as_ref().map(|_| known.turns);
    let history = known.messages;
    let stores = keeps && request.store != Some(false);
    let instructions = request.instructions.clone().map(|text| Arc::new(Message::System(text)));
    let earlier = usize::from(instructions.is_some()) + history.len();
    let inputs = history.len() + request.messages.len();
    // The id of a response that is not kept leads nowhere.
    let keeper = if stores { conversation.clone() } else { ConversationId::random().map_err(no_random)? };
    let id = ResponseId::new(keeper, inputs).map_err(no_random)?;
    let head = ResponseHead::new(&id, stores, &request);
    let question = CompletionRequest {
        caller,
        model: request.model,
        messages: instructions.into_iter().chain(history).chain(request.messages).collect(),
        config: request.config,
        output: request.output,
        record: stores.then_some(TurnRecord { conversation, earlier, turns }),
    };
    Ok((head, question))
}

/// Returns the conversation of a response, by its id and its content.
async fn continued(
    text: &str,
    caller: &CallerContext,
    answers: &dyn ModelBackend,
) -> Result<(ConversationId, StoredConversation), ApiError> {
    let id = ResponseId::parse(text).ok_or_else(|| ApiError::no_response(text))?;
    let known = match answers.history(&id.conversation, caller).await {
        Err(CompletionError::NoConversation) => return Err(ApiError::no_response(text)),
        found => found?,
    };
    if !id.is_latest(&known.messages) {
        let why = "the conversation has gone on after this response: continue its last one, or leave \
                   `previous_response_id` out and send the whole conversation as `input`";
        return Err(ApiError::invalid(Some("previous_response_id"), why));
    }
    Ok((id.conversation, known))
}

fn no_random(error: getrandom::Error) -> ApiError {
    ApiError::unavailable(format!("the system has no random numbers: {error}"))
}
