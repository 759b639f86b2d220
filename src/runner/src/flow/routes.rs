//! HTTP routes of flows.
//!
//! | route | answered by |
//! |---|---|
//! | one flow: `POST /`, `POST /<flow>` | the flow's entry prompt |
//! | one flow: `POST /<prompt>` | that prompt |
//! | a set: `POST /<flow>` | that flow's entry prompt |
//! | a set: `POST /<flow>/<prompt>` | that prompt of that flow |
//!
//! The body is a JSON object of template variables; an empty one is `{}`. The response is the model's text as
//! `text/plain`; as `application/json` when the prompt's output format is JSON; as events ([`sse`]) when `Accept` has
//! `text/event-stream`, where JSON is one token, because it can only be validated as a whole.
//!
//! OpenAI's API ([`chat`](super::chat)) is served beside it.
//!
//! Errors are those of [`common_routes`](crate::common_routes), and 400 for a body that is not an object or does not
//! match the prompt's input schema, 429 where the tokens of today are spent before anything is said, 500 for a template that
//! fails with its variables, 502 when the model fails or its answer does not match the output schema, 503 for a flow that
//! cannot be served, with the reason.

use std::{fmt::Display, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::{FromRequest, Request, State},
    http::{
        Method, StatusCode,
        header::{ALLOW, CONTENT_TYPE, HeaderValue},
    },
    response::{IntoResponse, Response},
};
use dotprompt::RenderError;
use serde_json::{Value, json};

use super::{
    endpoint::{PromptEndpoint, PromptRunError},
    table::{Label, RouteMatch, RouteTable},
};
use crate::{
    caller::CallerContext,
    common_routes::{ErrorResponse, wants_events},
    metrics::RunnerMetrics,
    models::ModelError,
    sse,
};

/// State shared by the routes.
struct FlowApp {
    table: RouteTable,
    metrics: RunnerMetrics,
}

/// Returns the router for `table`.
pub(super) fn router(table: RouteTable, metrics: RunnerMetrics) -> Router {
    // One handler looks all paths up in one map: their names come from files, and any of them may be a flow in error.
    Router::new().fallback(serve).with_state(Arc::new(FlowApp { table, metrics }))
}

async fn serve(State(app): State<Arc<FlowApp>>, request: Request) -> Response {
    let (label, response) = match app.table.find(request.uri().path()) {
        RouteMatch::NotFound(known) => {
            let text = format!("unknown route; POST to one of: {known}");
            return ErrorResponse(StatusCode::NOT_FOUND, text).into_response();
        }
        RouteMatch::Broken(label, why) => {
            (label, ErrorResponse(StatusCode::SERVICE_UNAVAILABLE, why.into()).into_response())
        }
        RouteMatch::Endpoint(label, endpoint) => (label, respond(label, endpoint.clone(), request).await),
    };
    app.metrics.count_flow_response(label, response.status());
    response
}

async fn respond(label: &Label, endpoint: Arc<PromptEndpoint>, request: Request) -> Response {
    if *request.method() != Method::POST {
        let text = format!("{} is not allowed here; use POST", request.method());
        let mut response = ErrorResponse(StatusCode::METHOD_NOT_ALLOWED, text).into_response();
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    match run_turn(label, endpoint, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn run_turn(
    label: &Label,
    endpoint: Arc<PromptEndpoint>,
    mut request: Request,
) -> Result<Response, ErrorResponse> {
    let events = wants_events(request.headers());
    let caller = CallerContext::from_headers(std::mem::take(request.headers_mut()));
    let body = Bytes::from_request(request, &()).await?;
    let mut prompt = endpoint.render(&variables(&body)?, &[]).map_err(|error| match error {
        RenderError::Input(text) => ErrorResponse(StatusCode::BAD_REQUEST, text),
        RenderError::Template { .. } => ErrorResponse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })?;
    if endpoint.model.needs_key() && caller.key.is_none() {
        return Err(failure(&ModelError::no_key().into()));
    }
    let CallerContext { key, headers, account, .. } = caller;
    prompt.key = key;
    prompt.account = account.clone();
    let flow = label.clone();
    if events {
        let models = endpoint.model.names();
        let response = sse::respond(&models, async move |tokens| {
            match endpoint.respond(&flow, prompt, &headers, Some(&tokens)).await {
                Ok(outcome) => {
                    let mut last = json!({});
                    sse::add_models(&mut last, &outcome.answerers);
                    sse::add_usage(&mut last, &account);
                    Ok(last)
                }
                Err(error) => Err(error.to_string()),
            }
        });
        return Ok(response.await);
    }
    let outcome = endpoint.respond(&flow, prompt, &headers, None).await.map_err(|error| failure(&error))?;
    let answerer = outcome.answerers.first().cloned();
    let response = match endpoint.output.is_some() {
        true => ([(CONTENT_TYPE, "application/json")], outcome.text).into_response(),
        false => outcome.text.into_response(),
    };
    Ok(sse::with_model(response, answerer))
}

fn failure(error: &PromptRunError) -> ErrorResponse {
    let status = match error {
        PromptRunError::Model(error) => error.response_status(),
        PromptRunError::Output(_) => StatusCode::BAD_GATEWAY,
    };
    ErrorResponse(status, error.to_string())
}

/// Parses the variables in a body.
fn variables(body: &[u8]) -> Result<Value, ErrorResponse> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let bad = |why: &dyn Display| {
        let text = format!("the body must be a JSON object with the prompt's variables: {why}");
        ErrorResponse(StatusCode::BAD_REQUEST, text)
    };
    match serde_json::from_slice(body) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(bad(&"it is JSON, but no object")),
        Err(error) => Err(bad(&error)),
    }
}
