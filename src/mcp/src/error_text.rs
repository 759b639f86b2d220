//! Renders rmcp's errors as the end of a sentence: without type names, without the URL, which may hold a key, and without a word
//! of the server, whose errors may repeat the credentials that it was sent.

use rmcp::{
    model::ErrorData,
    service::{ClientInitializeError, ServiceError},
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

/// Longest text, in bytes.
const LENGTH: usize = 400;

/// Describes why no session could be opened.
pub(super) fn startup(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => transport(error),
        // A server that knows neither era gave the same answer twice.
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => startup(fallback),
        ClientInitializeError::JsonRpcError(error) => refusal(error),
        ClientInitializeError::ConnectionClosed(_) => "the connection was closed".into(),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it speaks no revision of the protocol that is known here".into()
        }
        _ => "its answer does not fit the request".into(),
    }
}

/// Describes why a call has no answer.
pub(super) fn call(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => refusal(error),
        ServiceError::TransportSend(error) => transport(error),
        ServiceError::TransportClosed => "the connection was closed".into(),
        ServiceError::Cancelled { .. } => "it ended the request".into(),
        ServiceError::Timeout { .. } => "it did not answer in time".into(),
        _ => "its answer does not fit the request".into(),
    }
}

fn refusal(error: &ErrorData) -> String {
    format!("it refuses with the JSON-RPC error {}", error.code.0)
}

fn transport(error: &DynamicTransportError) -> String {
    use StreamableHttpError as Http;
    let Some(error) = error.error.downcast_ref::<Http<reqwest::Error>>() else {
        return "the connection broke".into();
    };
    let words = match error {
        Http::Client(error) => return http(error),
        Http::HttpStatus(error) => return format!("HTTP {}", error.status),
        Http::Sse(_) => "its stream of events cannot be read",
        Http::UnexpectedEndOfStream => "its answer ends early",
        Http::UnexpectedServerResponse(_) | Http::Deserialize(_) => "its answer is not a JSON-RPC message",
        Http::ResponseBodyTooLarge { .. } => "its answer is too large",
        Http::UnexpectedContentType(_) => "it answers neither JSON nor a stream of events",
        Http::AuthRequired(_) | Http::InsufficientScope(_) => "it rejects the credentials",
        Http::SessionExpired | Http::ReinitializationFailed(_) => "it forgot the session",
        _ => "the connection broke",
    };
    words.into()
}

/// Describes a failed request by its status or its causes; the error's own text has the URL.
fn http(error: &reqwest::Error) -> String {
    if let Some(status) = error.status() {
        return format!("HTTP {status}");
    }
    causes(error)
}

/// Returns the causes of a failed request, without its own text.
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
