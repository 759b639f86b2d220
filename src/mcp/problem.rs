//! rmcp's errors as the end of a sentence: what happened, without type names, and without the URL, which may hold a key.

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

/// Longest text, in bytes: some quote what the server sent.
const LENGTH: usize = 400;

/// Why no session came to be.
pub(super) fn startup(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => transport(error),
        // A server that knows neither era said the same twice.
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => startup(fallback),
        ClientInitializeError::JsonRpcError(error) => line(&error.message),
        other => line(&other.to_string()),
    }
}

/// Why a call has no answer.
pub(super) fn call(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => transport(error),
        other => line(&other.to_string()),
    }
}

fn transport(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => http(error),
        Some(other) => line(&other.to_string()),
        None => line(&error.error.to_string()),
    }
}

/// The causes of a failed request; its own text has the URL.
fn http(error: &reqwest::Error) -> String {
    if let Some(status) = error.status() {
        return format!("HTTP {status}");
    }
    causes(error)
}

/// The causes of a failed request, without its own text.
pub(super) fn causes(error: &reqwest::Error) -> String {
    let mut causes = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    if causes.is_empty() { "the request failed".into() } else { line(&causes.join(": ")) }
}

fn line(text: &str) -> String {
    let end = text.floor_char_boundary(LENGTH);
    text[..end].replace(['\n', '\r'], " ")
}
