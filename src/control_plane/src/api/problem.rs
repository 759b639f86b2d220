//! Problem details of HTTP errors ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)).

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;

/// What went wrong with a request (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// Always about:blank: the status says which sort of problem it is.
    #[serde(rename = "type")]
    type_: &'static str,
    /// The status in words.
    title: &'static str,
    /// The status code.
    status: u16,
    /// What went wrong, and what to do.
    detail: String,
    /// The parameter that cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<String>,
}

impl Problem {
    /// Creates a problem with this status.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self { type_: "about:blank", title, status: status.as_u16(), detail: detail.into(), parameter: None }
    }

    /// Creates a problem about a parameter that cannot be used.
    pub(crate) fn parameter(name: &str, detail: impl Into<String>) -> Self {
        Self { parameter: Some(name.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, detail) }
    }

    /// Creates a 404 problem.
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, what)
    }

    /// Creates a 500 problem for a defect of the control plane, and logs the error.
    pub(crate) fn defect(error: &dyn std::error::Error) -> Self {
        tracing::error!(%error, "a request cannot be answered");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "this is a defect of the control plane: see its log")
    }

    /// Returns the status code.
    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Returns the detail.
    #[cfg(test)]
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Serializing strings and numbers cannot fail.
        let mut response = Response::new(Body::from(serde_json::to_vec(&self).unwrap_or_default()));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self.status {
            // The challenge of RFC 6750, section 3.
            401 => drop(fields.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            429 => drop(fields.insert(header::RETRY_AFTER, HeaderValue::from_static("10"))),
            503 => drop(fields.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => {}
        }
        response
    }
}
