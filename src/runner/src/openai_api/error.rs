//! Errors in the form that OpenAI's clients turn into their own types.

use axum::{
    Json,
    extract::rejection::BytesRejection,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::backend::CompletionError;

/// Why a request is not answered.
#[derive(Debug, PartialEq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    /// What of the request is wrong, for example `messages[0].content`.
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    /// The request is wrong, at `param` where that is known.
    pub(super) fn invalid(param: Option<&str>, message: impl Into<String>) -> Self {
        let param = param.map(str::to_owned);
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), param, code: None }
    }

    /// There is no such model.
    pub(super) fn no_model(model: &str, known: &[String]) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            message: format!("there is no model `{model}` here; there is: {}", known.join(", ")),
            param: Some("model".into()),
            code: Some("model_not_found"),
        }
    }

    /// An error that its status tells.
    pub(crate) fn with_status(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// Nothing can be answered now.
    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self::with_status(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// The object in a body or an event.
    pub(super) fn body(&self) -> Value {
        let kind = if self.status.is_server_error() { "server_error" } else { "invalid_request_error" };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            status @ StatusCode::PAYLOAD_TOO_LARGE => Self::with_status(status, "the body is larger than 1 MiB"),
            _ => Self::invalid(None, "the body broke off"),
        }
    }
}

impl From<CompletionError> for ApiError {
    fn from(error: CompletionError) -> Self {
        match error {
            CompletionError::Input(why) => Self::invalid(Some("messages"), why),
            CompletionError::Model(_) | CompletionError::Failed(_) => {
                Self::with_status(StatusCode::BAD_GATEWAY, error.to_string())
            }
        }
    }
}
