//! HTTP routes of an agent.
//!
//! | route | answer |
//! |---|---|
//! | `POST /chat` `{message, conversation_id?, may_wait?}` | `{reply, conversation_id, title?}`, or events when `Accept` has `text/event-stream`; 202 with `task` and `approval` for a turn that [waits](super::parking) |
//! | `GET /approvals`, `GET` and `POST /approvals/{task}` | [what waits for the caller, and its decision](super::approvals) |
//! | `GET /.well-known/agent-card.json`, `POST /` | [A2A](super::a2a) |
//! | `GET /v1/models`, `POST /v1/chat/completions`, `POST /v1/responses` | [OpenAI's API](super::openai_api) |
//!
//! Probes, metrics and the behaviour common to all routes are in [`common_routes`](super::common_routes). 400 is for a
//! body that is not the object above, 401 where the model needs the caller's key and there is none, 404 for a conversation
//! of another user, or one that does not exist although its id has the form of generated ids, 429 where the tokens of today
//! are spent before anything is said, 502 for a model that fails, 503 for an agent that is not ready or whose database is
//! unreachable. An id chosen by the client starts a conversation.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State, rejection::BytesRejection},
    http::{StatusCode, header::HeaderMap},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::Deserialize;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::{
    a2a::{A2a, CardSettings},
    agent::{Agent, ChatTurn, TurnError},
    approvals,
    caller::CallerContext,
    common_routes::{CommonRoutes, ErrorResponse, ReadinessCheck, RunnerService, wants_events},
    conversations::history::ConversationId,
    metrics::RunnerMetrics,
    openai_api::{self, NamedAgent, backend::ModelBackend},
    sse,
};

/// State shared by the routes.
#[derive(Clone)]
pub(super) struct AgentApp {
    /// Name of the agent.
    pub(super) name: String,
    /// Settings of its A2A card.
    pub(super) card: Arc<CardSettings>,
    /// Namespace of the agent.
    pub(super) namespace: String,
    /// Agent, or the reason why it cannot be served.
    pub(super) agent: Result<Arc<Agent>, String>,
    /// Metrics.
    pub(super) metrics: RunnerMetrics,
    /// Requests in flight; closed once the process drains.
    pub(super) requests: TaskTracker,
}

/// Body of `POST /chat`.
#[derive(Deserialize)]
struct Chat {
    message: String,
    conversation_id: Option<String>,
    /// False: refuse calls that the caller has to approve, because the caller is no person and cannot.
    may_wait: Option<bool>,
}

impl AgentApp {
    /// Builds all routes.
    pub(super) fn service(self) -> RunnerService {
        let readiness = match &self.agent {
            Ok(_) => Ok(json!({ "status": "ok" })),
            Err(why) => Err(json!({ "error": why })),
        };
        let check = self.agent.clone().ok().map(|agent| -> ReadinessCheck {
            Arc::new(move || {
                let agent = agent.clone();
                Box::pin(async move { agent.check().await })
            })
        });
        let shell = CommonRoutes {
            check,
            readiness: readiness.into(),
            metrics: self.metrics.clone(),
            requests: self.requests.clone(),
        };
        let (name, namespace) = (self.name.clone(), self.namespace.clone());
        let named = |agent| -> Arc<dyn ModelBackend> { Arc::new(NamedAgent { name, namespace, agent }) };
        let model = self.agent.clone().map(named);
        let agent = self.agent.clone().ok();
        let a2a = A2a::new(&self.name, &self.namespace, self.card.clone(), self.agent.clone(), self.requests.clone());
        let ledger = self.metrics.usage.clone();
        let sweep = agent.clone().and_then(|agent| approvals::sweep(agent, ledger, self.requests.clone()));
        let approvals = approvals::routes(self.agent.clone(), self.metrics.usage.clone(), self.requests.clone());
        let routes = Router::new()
            .route("/chat", post(chat))
            .fallback(async || ErrorResponse(StatusCode::NOT_FOUND, "unknown route; POST to /chat".into()))
            .with_state(self)
            .merge(approvals)
            .merge(a2a.routes())
            .merge(openai_api::routes(model));
        let service = shell.wrap(routes);
        let router = service.router.layer(middleware::from_fn_with_state(agent, add_model_failure));
        RunnerService { router, sweep, ..service }
    }
}

/// Says in a response by another model why the first one did not answer.
async fn add_model_failure(State(agent): State<Option<Arc<Agent>>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some(agent) = agent {
        sse::add_failure(&mut response, agent.model_failure().as_deref());
    }
    response
}

async fn chat(
    State(app): State<AgentApp>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorResponse> {
    let agent = app.agent.map_err(|why| ErrorResponse(StatusCode::SERVICE_UNAVAILABLE, why))?;
    let is_stream = wants_events(&headers);
    let caller = CallerContext::from_headers(headers);
    let account = caller.account.clone();
    let turn = agent.prepare_turn(read_turn(&body?, caller)?).await?;
    if is_stream {
        let models = agent.models();
        let response = sse::respond(&models, async move |tokens| match agent.respond(turn, Some(&tokens)).await {
            Ok(reply) => Ok(reply.done_event(&account)),
            Err(error) => Err(error.to_string()),
        });
        return Ok(response.await);
    }
    Ok(agent.respond(turn, None).await?.into_response())
}

impl From<TurnError> for ErrorResponse {
    fn from(error: TurnError) -> Self {
        let status = match &error {
            TurnError::Model(error) => error.response_status(),
            TurnError::Conversations(_) | TurnError::Interrupted(_) | TurnError::Draining => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            TurnError::NoConversation(_) => StatusCode::NOT_FOUND,
            TurnError::Overtaken | TurnError::Waits | TurnError::ClaimLost => StatusCode::CONFLICT,
            TurnError::Random(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

/// Parses the body of `POST /chat`.
fn read_turn(body: &[u8], caller: CallerContext) -> Result<ChatTurn, ErrorResponse> {
    let bad = |text: String| ErrorResponse(StatusCode::BAD_REQUEST, text);
    let chat: Chat = serde_json::from_slice(body)
        .map_err(|error| bad(format!("the body must be JSON like {{\"message\": \"…\"}}: {error}")))?;
    if chat.message.trim().is_empty() {
        return Err(bad("`message` is empty".into()));
    }
    let parse = |id: String| {
        ConversationId::parse(&id)
            .ok_or_else(|| bad("`conversation_id` must be 1 to 128 letters, digits, `.`, `_`, `:` or `-`".into()))
    };
    let conversation = chat.conversation_id.map(parse).transpose()?;
    let may_begin = conversation.as_ref().is_none_or(|id| !id.is_generated());
    Ok(ChatTurn {
        caller,
        conversation,
        may_create: may_begin,
        may_wait: chat.may_wait.unwrap_or(true),
        message: chat.message,
    })
}
