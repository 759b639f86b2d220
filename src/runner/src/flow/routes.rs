//! The HTTP interface of flows.
//!
//! | route | answers with |
//! |---|---|
//! | one flow: `POST /`, `POST /<flow>` | the flow's entry prompt |
//! | one flow: `POST /<prompt>` | that prompt |
//! | a set: `POST /<flow>` | that flow's entry prompt |
//! | a set: `POST /<flow>/<prompt>` | that prompt of that flow |
//!
//! The body is a JSON object of template variables; an empty one is `{}`. The answer is the model's text as
//! `text/plain`; as `application/json` when the prompt's output format is JSON; as events ([`sse`]) when `Accept` has
//! `text/event-stream`, where JSON is one token, because only as a whole it can be checked.
//!
//! OpenAI's API ([`chat`](super::chat)) is beside it.
//!
//! Errors are as in [`shell`](crate::shell), and 400 for a body that is no object or does not fit the prompt's
//! input schema, 500 for a template that fails with what it was given, 502 when the model fails or its answer does not fit
//! the output schema, 503 for a flow that cannot be served, with the reason.

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
    endpoint::Endpoint,
    table::{Found, Table},
};
use crate::{
    metrics::Metrics,
    shell::{Refusal, wants_events},
    sse,
};

/// What the routes share.
struct App {
    table: Table,
    metrics: Metrics,
}

/// The routes of `table`.
pub(super) fn router(table: Table, metrics: Metrics) -> Router {
    // All routes are looked up in one map: their names come from files, and any of them may be a flow in error.
    Router::new().fallback(serve).with_state(Arc::new(App { table, metrics }))
}

async fn serve(State(app): State<Arc<App>>, request: Request) -> Response {
    let (label, response) = match app.table.find(request.uri().path()) {
        Found::Nothing(known) => {
            let text = format!("there is no such route; POST to one of: {known}");
            return Refusal(StatusCode::NOT_FOUND, text).into_response();
        }
        Found::Broken(label, why) => (label, Refusal(StatusCode::SERVICE_UNAVAILABLE, why.into()).into_response()),
        Found::Endpoint(label, endpoint) => (label, answer(endpoint.clone(), request).await),
    };
    app.metrics.flow_answered(label, response.status());
    response
}

async fn answer(endpoint: Arc<Endpoint>, request: Request) -> Response {
    if *request.method() != Method::POST {
        let text = format!("{} is not allowed here; use POST", request.method());
        let mut response = Refusal(StatusCode::METHOD_NOT_ALLOWED, text).into_response();
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    match turn(endpoint, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn turn(endpoint: Arc<Endpoint>, request: Request) -> Result<Response, Refusal> {
    let events = wants_events(request.headers());
    let body = Bytes::from_request(request, &()).await?;
    let prompt = endpoint.render(&variables(&body)?, &[]).map_err(|error| match error {
        RenderError::Input(text) => Refusal(StatusCode::BAD_REQUEST, text),
        RenderError::Template { .. } => Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })?;
    if events {
        return Ok(sse::respond(async move |tokens| match endpoint.answer(prompt, Some(&tokens)).await {
            Ok(_) => Ok(json!({})),
            Err(error) => Err(error.to_string()),
        }));
    }
    match endpoint.answer(prompt, None).await {
        Ok(said) if endpoint.output.is_some() => Ok(([(CONTENT_TYPE, "application/json")], said.text).into_response()),
        Ok(said) => Ok(said.text.into_response()),
        Err(error) => Err(Refusal(StatusCode::BAD_GATEWAY, error.to_string())),
    }
}

/// The variables a body holds.
fn variables(body: &[u8]) -> Result<Value, Refusal> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let bad = |why: &dyn Display| {
        let text = format!("the body must be a JSON object with the prompt's variables: {why}");
        Refusal(StatusCode::BAD_REQUEST, text)
    };
    match serde_json::from_slice(body) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(bad(&"it is JSON, but no object")),
        Err(error) => Err(bad(&error)),
    }
}
