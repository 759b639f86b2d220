//! Adapts rmcp's HTTP client to two deviations of servers from the specification.
//!
//! By the [specification](https://modelcontextprotocol.io/specification/2025-06-18/basic/transports#session-management) the
//! answer to an unknown session is HTTP 404, and rmcp then opens another session and repeats the request. The servers of the
//! official SDK send a JSON-RPC error instead, often without the id of the request, for which rmcp would wait for ever. So an
//! error about a session is returned as that 404, and any other without an id gets the id of the request.
//!
//! The context of a call's trace is sent as headers, too, for what stands between here and the server.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use reqwest::Client;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId, RequestParamsMeta as _};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpClient};
use rmcp::transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse};
use sse_stream::Sse;

/// Largest event of a server's stream, in bytes. A whole JSON answer may have 16 MiB, which is rmcp's own limit.
const MAX_EVENT: usize = 4 << 20;

/// HTTP client of a session in which tools are called.
#[derive(Clone)]
pub(super) struct SessionHttpClient(pub(super) Client);

type CallHeaders = HashMap<HeaderName, HeaderValue>;
type CallTransportError = StreamableHttpError<reqwest::Error>;

impl StreamableHttpClient for SessionHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        authorization: Option<String>,
        mut headers: CallHeaders,
    ) -> Result<StreamableHttpPostResponse, CallTransportError> {
        add_trace(&message, &mut headers);
        let asked = request_id(&message);
        let in_session = session.is_some();
        let sent =
            self.0.post_message_with_max_sse_event_size(uri, message, session, authorization, headers, MAX_EVENT);
        normalize_response(sent.await?, asked, in_session)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        authorization: Option<String>,
        headers: CallHeaders,
    ) -> Result<(), CallTransportError> {
        self.0.delete_session(uri, session, authorization, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        authorization: Option<String>,
        headers: CallHeaders,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, CallTransportError> {
        self.0.get_stream_with_max_sse_event_size(uri, session, last_event, authorization, headers, MAX_EVENT).await
    }
}

/// Adds the context of the trace that a call names in its `_meta`.
fn add_trace(message: &ClientJsonRpcMessage, headers: &mut CallHeaders) {
    let JsonRpcMessage::Request(request) = message else { return };
    let ClientRequest::CallToolRequest(call) = &request.request else { return };
    for (name, value) in [("traceparent", call.params.traceparent()), ("tracestate", call.params.tracestate())] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Returns the id of a request; `None` for a message that is none.
pub(super) fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

pub(super) fn normalize_response(
    answer: StreamableHttpPostResponse,
    asked: Option<RequestId>,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, CallTransportError> {
    let StreamableHttpPostResponse::Json(JsonRpcMessage::Error(mut refusal), session) = answer else {
        return Ok(answer);
    };
    let own = (-32099..=-32000).contains(&refusal.error.code.0);
    if in_session && own && refusal.error.message.to_ascii_lowercase().contains("session") {
        return Err(StreamableHttpError::SessionExpired);
    }
    refusal.id = refusal.id.or(asked);
    Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(refusal), session))
}
