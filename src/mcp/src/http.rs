//! rmcp's HTTP client, with two habits of servers put right.
//!
//! A session that is not known is a 404 in the specification, upon which rmcp opens another and asks again. The official
//! SDK's servers say it as a JSON-RPC error, often without the id of the request, for which rmcp would wait for ever. So
//! an error about a session is told as that 404, and any other without an id gets the id of what was asked.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use reqwest::Client;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpClient};
use rmcp::transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse};
use sse_stream::Sse;

/// Largest event of a server's stream, in bytes. A whole JSON answer may have 16 MiB, which is rmcp's own cap.
const MAX_EVENT: usize = 4 << 20;

/// The client.
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
        headers: CallHeaders,
    ) -> Result<StreamableHttpPostResponse, CallTransportError> {
        let asked = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
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
