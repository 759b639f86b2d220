//! HTTP+SSE, the transport of the protocol's [first revision
//! (2024-11-05)](https://modelcontextprotocol.io/specification/2024-11-05/basic/transports): one stream of server-sent events,
//! which begins with the URL to which messages are posted.
//!
//! rmcp no longer has it; this module provides it to rmcp's client as a [`Transport`].

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::ACCEPT;
use http::{HeaderName, HeaderValue};
use rmcp::model::ServerJsonRpcMessage;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::{Sse, SseStream};
use tokio::time::timeout;
use url::Url;

use super::bounded_client::{BoundedClient, ServerFailure, has_content_type, refusal};
use super::reason;

type SseHeaders = HashMap<HeaderName, HeaderValue>;

/// Connection to a server.
pub(super) struct SseTransport {
    client: BoundedClient,
    headers: SseHeaders,
    /// URL to which messages are posted.
    endpoint: Url,
    events: BoxStream<'static, Result<Sse, SseError>>,
    /// Longest silence on the stream.
    idle_timeout: Duration,
}

/// Failure to send a message.
#[derive(Debug, thiserror::Error)]
#[error("the message could not be sent")]
pub(super) struct SseSendError;

impl SseTransport {
    /// Opens the stream and waits for the event with that URL.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the request, opens no stream of events, ends it too early, or gives a URL of another
    /// origin.
    pub(super) async fn open(
        client: &BoundedClient,
        url: &Url,
        headers: &SseHeaders,
        silence: Duration,
    ) -> Result<Self, ServerFailure> {
        let failed = |message: &str| {
            client.take_failure().unwrap_or_else(|| ServerFailure::new(reason::INVALID_SERVER_ANSWER, message))
        };
        let request = with_headers(client.http().get(url.clone()).header(ACCEPT, "text/event-stream"), headers);
        let response = client.send(request).await.map_err(|_| failed("it cannot be reached"))?;
        if !response.status().is_success() {
            let (status, body) = (response.status(), client.read_excerpt(response).await);
            let reason = if status.is_server_error() { reason::SERVER_UNREACHABLE } else { reason::SERVER_REFUSED };
            return Err(ServerFailure::new(reason, refusal(status, &body)));
        }
        if !has_content_type(&response, "text/event-stream") {
            let message = "it opens no stream of events: see whether spec.url has the right path, such as /sse";
            return Err(ServerFailure::new(reason::INVALID_SERVER_ANSWER, message));
        }
        let mut events = SseStream::from_bytes_stream(client.counted(response)).boxed();
        let endpoint = loop {
            let event = events.next().await.and_then(Result::ok);
            let event = event.ok_or_else(|| failed("its stream of events ends before it says where messages go"))?;
            if event.event.as_deref() == Some("endpoint") {
                break event.data.unwrap_or_default();
            }
        };
        let endpoint = url.join(endpoint.trim()).ok().filter(|endpoint| endpoint.origin() == url.origin());
        let Some(endpoint) = endpoint else {
            let message =
                "it asks for messages at another origin, which is not followed: set spec.url to where the server is";
            return Err(ServerFailure::new(reason::SERVER_REFUSED, message));
        };
        Ok(Self { client: client.clone(), headers: headers.clone(), endpoint, events, idle_timeout: silence })
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseSendError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SseSendError>> + Send + 'static {
        let request = with_headers(self.client.http().post(self.endpoint.clone()), &self.headers).json(&message);
        let client = self.client.clone();
        async move {
            let response = client.send(request).await.map_err(|_| SseSendError)?;
            if response.status().is_success() {
                return Ok(());
            }
            let (status, body) = (response.status(), client.read_excerpt(response).await);
            client.fail(reason::SERVER_REFUSED, refusal(status, &body));
            Err(SseSendError)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let event = timeout(self.idle_timeout, self.events.next()).await.ok()??.ok()?;
            if !matches!(event.event.as_deref(), None | Some("" | "message")) {
                continue;
            }
            match serde_json::from_str::<ServerJsonRpcMessage>(event.data.as_deref().unwrap_or_default()) {
                Ok(message) => return Some(message),
                Err(_) => {
                    self.client.fail(
                        reason::INVALID_SERVER_ANSWER,
                        "it does not speak MCP: an event of its stream is not a JSON-RPC message",
                    );
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), SseSendError> {
        self.events = futures::stream::empty().boxed();
        Ok(())
    }
}

fn with_headers(request: reqwest::RequestBuilder, headers: &SseHeaders) -> reqwest::RequestBuilder {
    headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}
