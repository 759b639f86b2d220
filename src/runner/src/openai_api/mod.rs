//! The part of OpenAI's API that chat clients need, so that any of them can talk to an agent or a flow.
//!
//! | route | answer |
//! |---|---|
//! | `GET /v1/models` | what can be asked: the agent, or the flows |
//! | `GET /v1/models/{model}` | one of them |
//! | `POST /v1/chat/completions` | the answer to `messages`, which are the whole conversation: nothing is stored |
//!
//! Tools are called here and not by the client. Errors are `{"error": {"message", "type", "param", "code"}}`: 400 for a
//! wrong request, 404 for an unknown model, 413 for a body over 1 MiB, 502 when the model fails, 503 while draining, not
//! ready, or for a flow in error.

mod agent;
mod error;
mod reply;
mod request;

use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::Sender;

pub(super) use self::agent::NamedAgent;
pub(super) use self::error::ApiError;
use self::reply::Head;
use self::request::Completion;
use super::models::{Message, ModelError, OutputFormat, Part, ToolCall, Usage};
use super::shell::Caller;
use super::told::Told;
use super::turn::Said;

/// Whatever answers under the names of models.
#[async_trait]
pub(super) trait Answers: Send + Sync {
    /// The names, in the order in which they are listed.
    fn models(&self) -> Vec<String>;

    /// Why a model that is not listed, because it is in error, cannot be asked.
    fn broken(&self, _model: &str) -> Option<&str> {
        None
    }

    /// Answers; text goes to `tokens` as it comes, when somebody listens. Dropping the future ends the turn.
    ///
    /// # Errors
    /// There will be no answer.
    async fn answer(&self, question: Question, tokens: Option<&Sender<Told>>) -> Result<Said, AnswerError>;
}

/// What a client asks.
#[derive(Debug)]
pub(super) struct Question {
    /// Who asks.
    pub(super) caller: Caller,
    /// One of the [names](Answers::models).
    pub(super) model: String,
    /// The whole conversation, not empty, oldest first.
    pub(super) messages: Vec<Arc<Message>>,
    /// Generation config, over what is set up.
    pub(super) config: Map<String, Value>,
    /// Set when the answer is to be JSON.
    pub(super) output: Option<OutputFormat>,
}

impl Question {
    /// About how many bytes are asked.
    fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.bytes()).sum()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// The conversation cannot be answered as it is.
    #[error("{0}")]
    Input(String),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Something else failed, as the text says.
    #[error("{0}")]
    Failed(String),
}

/// Who answers, or why nobody does.
type Answering = Result<Arc<dyn Answers>, String>;

#[derive(Clone)]
struct Api {
    answers: Answering,
    /// Since when, in seconds since 1970: what models were created at.
    since: i64,
}

/// The routes, for whoever answers, or with why nobody does.
pub(super) fn routes(answers: Answering) -> Router {
    let api = Api { answers, since: Timestamp::now().as_second() };
    Router::new()
        .route("/v1/models", get(list).fallback(not_allowed))
        .route("/v1/models/{model}", get(show).fallback(not_allowed))
        .route("/v1/chat/completions", post(complete).fallback(not_allowed))
        .route("/v1/{*rest}", any(async || ApiError::of(StatusCode::NOT_FOUND, "there is no such route under /v1")))
        .with_state(api)
}

async fn not_allowed(method: Method) -> ApiError {
    ApiError::of(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here"))
}

impl Api {
    fn answers(&self) -> Result<Arc<dyn Answers>, ApiError> {
        self.answers.clone().map_err(ApiError::unavailable)
    }

    /// Who answers for this model.
    fn answers_for(&self, id: &str) -> Result<Arc<dyn Answers>, ApiError> {
        let answers = self.answers()?;
        let known = answers.models();
        match answers.broken(id) {
            _ if known.iter().any(|one| one == id) => Ok(answers),
            Some(why) => Err(ApiError::unavailable(why)),
            None => Err(ApiError::no_model(id, &known)),
        }
    }

    fn model(&self, id: &str) -> Value {
        json!({ "id": id, "object": "model", "created": self.since, "owned_by": "recif" })
    }
}

async fn list(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let models: Vec<_> = api.answers()?.models().iter().map(|id| api.model(id)).collect();
    Ok(Json(json!({ "object": "list", "data": models })))
}

async fn show(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    api.answers_for(&id).map(|_| Json(api.model(&id)))
}

async fn complete(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    api.answers()?;
    let Completion { mut question, stream, include_usage } = Completion::read(&body?)?;
    question.caller = Caller::of(&headers);
    let answers = api.answers_for(&question.model)?;
    let head = Head::new(&question.model)
        .map_err(|error| ApiError::unavailable(format!("the system has no random numbers: {error}")))?;
    if stream {
        return reply::stream(head, include_usage, answers, question).await;
    }
    let asked = question.bytes();
    let said = answers.answer(question, None).await?;
    Ok(Json(head.completion(said, asked)).into_response())
}
