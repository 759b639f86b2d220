//! Subset of OpenAI's API that chat clients need, so that any of them can use an agent or a flow.
//!
//! | route | answer |
//! |---|---|
//! | `GET /v1/models` | list of models: the agent, or the flows |
//! | `GET /v1/models/{model}` | one of them |
//! | `POST /v1/chat/completions` | the answer to `messages`, which are the whole conversation: nothing is stored |
//! | `POST /v1/responses` | the answer to `input`, in a [conversation](responses) |
//! | any method of `/v1/responses/{id}` | 404, which says what is kept |
//!
//! Tools are called by this runtime, not by the client. Errors are `{"error": {"message", "type", "param", "code"}}`:
//! 400 for an invalid request, 404 for an unknown model, 413 for a body over 1 MiB, 502 when the model fails, 503 while
//! draining, not ready, or for a flow in error.

mod agent;
pub(crate) mod backend;
mod error;
mod reply;
mod request;
mod responses;

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State, rejection::BytesRejection},
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::{reply::CompletionHead, request::Completion};
use super::caller::CallerContext;
use crate::{openai_api::backend::ModelBackend, sse};

pub(super) use self::agent::NamedAgent;
pub(super) use self::error::ApiError;

/// Backend, or the reason why nothing can be served.
type BackendResult = Result<Arc<dyn ModelBackend>, String>;

#[derive(Clone)]
struct Api {
    backend: BackendResult,
    /// Start of the process in seconds since 1970, reported as the creation time of all models.
    since: i64,
}

/// Builds the routes for a backend; without one they respond with the reason.
pub(super) fn routes(answers: BackendResult) -> Router {
    let api = Api { backend: answers, since: Timestamp::now().as_second() };
    Router::new()
        .route("/v1/models", get(list).fallback(not_allowed))
        .route("/v1/models/{model}", get(show).fallback(not_allowed))
        .route("/v1/chat/completions", post(complete).fallback(not_allowed))
        .route("/v1/responses", post(responses::create).fallback(not_allowed))
        .route("/v1/responses/{*rest}", any(responses::refuse_by_id))
        .route("/v1/{*rest}", any(async || ApiError::with_status(StatusCode::NOT_FOUND, "unknown route under /v1")))
        .with_state(api)
}

async fn not_allowed(method: Method) -> ApiError {
    ApiError::with_status(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here"))
}

impl Api {
    fn backend(&self) -> Result<Arc<dyn ModelBackend>, ApiError> {
        self.backend.clone().map_err(ApiError::unavailable)
    }

    /// Returns the backend if it serves the model `id`.
    fn backend_for(&self, id: &str) -> Result<Arc<dyn ModelBackend>, ApiError> {
        let answers = self.backend()?;
        match answers.unavailable_reason(id) {
            _ if answers.serves(id) => Ok(answers),
            Some(why) => Err(ApiError::unavailable(why)),
            None => Err(ApiError::no_model(id, &answers.models())),
        }
    }

    fn model(&self, id: &str) -> Value {
        json!({ "id": id, "object": "model", "created": self.since, "owned_by": "recif" })
    }
}

async fn list(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let models: Vec<_> = api.backend()?.models().iter().map(|id| api.model(id)).collect();
    Ok(Json(json!({ "object": "list", "data": models })))
}

async fn show(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    api.backend_for(&id).map(|_| Json(api.model(&id)))
}

async fn complete(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    api.backend()?;
    let Completion { request: mut question, stream, include_usage } = Completion::read(&body?)?;
    question.caller = CallerContext::from_headers(headers);
    let answers = api.backend_for(&question.model)?;
    let head = CompletionHead::new(&question.model)
        .map_err(|error| ApiError::unavailable(format!("the system has no random numbers: {error}")))?;
    if stream {
        return reply::stream(head, include_usage, answers, question).await;
    }
    let asked = question.bytes();
    let outcome = answers.respond(question, None).await?;
    let answerer = outcome.answerers.first().cloned();
    Ok(sse::with_model(Json(head.completion(outcome, asked)).into_response(), answerer))
}
