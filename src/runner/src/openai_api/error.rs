//! Error responses in OpenAI's form, which its client libraries map to their own types.

use axum::{
    Json,
    extract::rejection::BytesRejection,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::backend::CompletionError;
use crate::models::ModelErrorKind;

/// Code and type of the error for a request whose budget is spent.
const INSUFFICIENT_QUOTA: &str = "insufficient_quota";

/// Error response to a request.
#[derive(Debug, PartialEq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    /// Path of the invalid field, for example `messages[0].content`.
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    /// Creates an error for an invalid request, at `param` if known.
    pub(super) fn invalid(param: Option<&str>, message: impl Into<String>) -> Self {
        let param = param.map(str::to_owned);
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), param, code: None }
    }

    /// Creates an error for an unknown model.
    pub(super) fn no_model(model: &str, known: &[String]) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            message: format!("unknown model `{model}`; known models: {}", known.join(", ")),
            param: Some("model".into()),
            code: Some("model_not_found"),
        }
    }

    /// Creates an error for a response that cannot be continued.
    pub(super) fn no_response(id: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message: format!(
                "unknown response `{id}`: it was not kept, has been forgotten, or is another user's; leave \
                 `previous_response_id` out, and send the whole conversation as `input`"
            ),
            param: Some("previous_response_id".into()),
            code: Some("previous_response_not_found"),
        }
    }

    /// Creates an error that is described by its status and a message.
    pub(crate) fn with_status(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// Creates an error for a service that cannot answer now.
    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self::with_status(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// Returns the text of the error.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the JSON object for a body or an event.
    pub(super) fn body(&self) -> Value {
        let kind = match self.code {
            Some(INSUFFICIENT_QUOTA) => INSUFFICIENT_QUOTA,
            _ if self.status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
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
            CompletionError::Unavailable(why) => Self::unavailable(why),
            CompletionError::NoConversation => {
                Self::with_status(StatusCode::CONFLICT, "the conversation became another user's meanwhile")
            }
            CompletionError::Conflict(why) => {
                Self { param: Some("previous_response_id".into()), ..Self::with_status(StatusCode::CONFLICT, why) }
            }
            CompletionError::Model(ref failed) => {
                let code = (failed.kind == ModelErrorKind::OverBudget).then_some(INSUFFICIENT_QUOTA);
                Self { code, ..Self::with_status(failed.response_status(), error.to_string()) }
            }
            CompletionError::Failed(_) => Self::with_status(StatusCode::BAD_GATEWAY, error.to_string()),
        }
    }
}
