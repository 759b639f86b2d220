//! HTTP client of discoveries: counts everything that is read from a server, and remembers why a server gave no answer, in words
//! for the author of its URL.
//!
//! rmcp's own client limits one body or event at a time, and a server may send as many as it likes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpClient};
use rmcp::transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse};
use sse_stream::{Sse, SseStream};
use tokio::time::{Instant, sleep_until};

use super::egress::DeniedAddress;
use super::error_text::causes;
use super::http::{normalize_response, request_id};
use super::read_budget::{MAX_DISCOVERY_BYTES, ReadBudget, ReadPermits};
use super::reason;

/// Longest silence on the stream of a server that is called.
pub(super) const STREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Most bytes that are read of a refusal.
const MAX_REFUSAL_BODY: usize = 16 << 10;

/// Shortest time between two openings of a stream that only listens.
const MIN_STREAM_INTERVAL: Duration = Duration::from_secs(5);

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const SESSION: &str = "mcp-session-id";

/// Reason why a server's tools are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFailure {
    /// CamelCase reason for the condition, one of [`reason::ALL`].
    pub reason: &'static str,
    /// Sentence without credentials, times and counters.
    pub message: String,
}

impl ServerFailure {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// HTTP client of one discovery. Clones share its state. Invariant: `failure` is the first failure since it was last taken.
#[derive(Clone)]
pub(super) struct BoundedClient {
    client: Client,
    budget: ReadBudget,
    failure: Arc<Mutex<Option<ServerFailure>>>,
    /// `true` if a session is ended at the server when it is over.
    terminates_session: bool,
    /// Longest silence on a stream that only listens.
    idle_timeout: Duration,
    /// Earliest time at which such a stream may be opened again: a server that ends each at once, or asks for no pause, is not
    /// queried all the time.
    next_stream: Arc<Mutex<Option<Instant>>>,
}

type DiscoveryHeaders = HashMap<HeaderName, HeaderValue>;
type DiscoveryTransportError = StreamableHttpError<reqwest::Error>;

impl BoundedClient {
    pub(super) fn new(client: Client, permits: ReadPermits, terminates: bool, silence: Duration) -> Self {
        Self {
            client,
            budget: ReadBudget::new(permits),
            failure: Arc::default(),
            terminates_session: terminates,
            idle_timeout: silence,
            next_stream: Arc::default(),
        }
    }

    /// Returns the client for a server whose tools are called.
    pub(super) fn for_calls(client: Client) -> Self {
        let reading = ReadBudget::for_calls();
        Self { budget: reading, ..Self::new(client, ReadPermits::default(), true, STREAM_IDLE_TIMEOUT) }
    }

    pub(super) fn http(&self) -> &Client {
        &self.client
    }

    /// Takes the first failure since the last call, as far as the client saw it.
    pub(super) fn take_failure(&self) -> Option<ServerFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the answer; from then on the server is only listened to.
    pub(super) fn listen(&self) {
        self.budget.listen();
    }

    /// Remembers the first failure, and returns it as an error of the transport.
    pub(super) fn fail(&self, reason: &'static str, message: impl Into<String>) -> DiscoveryTransportError {
        let failed = ServerFailure::new(reason, message);
        let problem = StreamableHttpError::UnexpectedServerResponse(failed.message.clone().into());
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
        problem
    }

    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, DiscoveryTransportError> {
        let response = request.send().await.map_err(|error| {
            let (reason, message) = send_failure(&error);
            self.fail(reason, message)
        })?;
        if response.status().is_redirection() {
            let message = "it redirects to another place, which is not followed: set spec.url to where the server is";
            return Err(self.fail(reason::SERVER_REFUSED, message));
        }
        Ok(response)
    }

    /// Returns the body as a stream whose bytes are counted.
    pub(super) fn counted(
        &self,
        response: Response,
    ) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + use<> {
        let counter = self.clone();
        response.bytes_stream().then(move |chunk| {
            let counter = counter.clone();
            async move { counter.count(chunk).await }
        })
    }

    async fn count(&self, chunk: reqwest::Result<Bytes>) -> Result<Bytes, std::io::Error> {
        match chunk {
            Ok(chunk) if self.budget.acquire(&chunk).await.is_ok() => Ok(chunk),
            Ok(_) => {
                self.fail(
                    reason::INVALID_SERVER_ANSWER,
                    format!("it sent more than {} MiB", MAX_DISCOVERY_BYTES >> 20),
                );
                Err(std::io::Error::other("the answer is too long"))
            }
            Err(error) => {
                self.fail(reason::SERVER_UNREACHABLE, format!("the connection broke: {}", causes(&error)));
                Err(std::io::Error::other("the connection broke"))
            }
        }
    }

    async fn read_all(&self, response: Response) -> Result<Vec<u8>, DiscoveryTransportError> {
        let mut body = Vec::new();
        let mut chunks = Box::pin(self.counted(response));
        while let Some(chunk) = chunks.next().await {
            body.extend_from_slice(
                &chunk.map_err(|_| self.fail(reason::INVALID_SERVER_ANSWER, "its answer cannot be read"))?,
            );
        }
        Ok(body)
    }

    /// Reads the beginning of a refusal.
    pub(super) async fn read_excerpt(&self, response: Response) -> String {
        let mut body = Vec::new();
        let mut chunks = Box::pin(self.counted(response));
        while let Some(Ok(chunk)) = chunks.next().await {
            body.extend_from_slice(&chunk);
            if body.len() >= MAX_REFUSAL_BODY {
                break;
            }
        }
        body.truncate(MAX_REFUSAL_BODY);
        String::from_utf8_lossy(&body).into_owned()
    }

    /// Maps a status other than 2xx to an answer or to an error of the transport.
    async fn map_refusal(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, DiscoveryTransportError> {
        let (status, json) = (response.status(), has_content_type(&response, JSON));
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let body = self.read_excerpt(response).await;
        let secret = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let parsed = serde_json::from_str::<ServerJsonRpcMessage>(&body).ok().filter(|_| json);
        if let ClientJsonRpcMessage::Request(request) = message
            && !secret
            && status != StatusCode::MISDIRECTED_REQUEST
            && let Some(error) = match (parsed, &request.request) {
                (Some(JsonRpcMessage::Error(error)), _) => Some(error.error),
                // A server of the older era does not know this request, and may say so in any way.
                (_, ClientRequest::DiscoverRequest(_))
                    if !in_session && (status.is_client_error() || matches!(status.as_u16(), 500 | 501)) =>
                {
                    Some(ErrorData::invalid_request(format!("HTTP {status}"), None))
                }
                _ => None,
            }
        {
            let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            self.remember_failure(reason::SERVER_REFUSED, refusal(status, &body));
            return normalize_response(
                StreamableHttpPostResponse::Json(error, None),
                Some(request.id.clone()),
                in_session,
            );
        }
        let reason = if status.is_server_error() { reason::SERVER_UNREACHABLE } else { reason::SERVER_REFUSED };
        Err(self.fail(reason, refusal(status, &body)))
    }

    /// Remembers a refusal that may turn out to be the failure.
    fn remember_failure(&self, reason: &'static str, message: String) {
        self.fail(reason, message);
    }
}

/// Prefix of the bridge's message for a program that the system does not start.
const NOT_STARTED: &str = "the MCP server cannot be started";

/// Describes a status in words, with a hint on how to correct the spec.
pub(super) fn refusal(status: StatusCode, body: &str) -> String {
    if let Some(cause) = not_started(body) {
        return format!("it answers HTTP {status}: {cause}");
    }
    let about_host = body.to_ascii_lowercase().contains("host");
    match status {
        StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST if about_host => format!(
            "it answers HTTP {status} because it does not take the host of spec.url in the Host header: let the server allow \
             that host, or set spec.url to a host that it allows"
        ),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            format!("it answers HTTP {status}: give it credentials that it takes in spec.headersFrom")
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            format!("it answers HTTP {status}: see whether spec.url has the right path, such as /mcp")
        }
        _ => format!("it answers HTTP {status}"),
    }
}

/// Returns the message of our bridge for a program that the system does not start, at most 200 characters.
fn not_started(body: &str) -> Option<String> {
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    let message = body["error"]["message"].as_str().filter(|message| message.starts_with(NOT_STARTED))?;
    Some(message.chars().take(200).collect())
}

/// Returns reason and message for a request that was not answered.
fn send_failure(error: &reqwest::Error) -> (&'static str, String) {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(denied) = inner.downcast_ref::<DeniedAddress>() {
            return (reason::ADDRESS_DENIED, denied.to_string());
        }
        cause = inner.source();
    }
    (reason::SERVER_UNREACHABLE, causes(error))
}

pub(super) fn has_content_type(response: &Response, type_: &str) -> bool {
    let found = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    found.to_ascii_lowercase().starts_with(type_)
}

fn with_headers(request: RequestBuilder, headers: DiscoveryHeaders, session: Option<&str>) -> RequestBuilder {
    let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    match session {
        Some(session) => request.header(SESSION, session),
        None => request,
    }
}

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: DiscoveryHeaders,
    ) -> Result<StreamableHttpPostResponse, DiscoveryTransportError> {
        let asked = request_id(&message);
        let request = self.client.post(uri.as_ref()).header(ACCEPT, format!("{JSON}, {EVENTS}"));
        let response = self.send(with_headers(request, headers, session.as_deref()).json(&message)).await?;
        if !response.status().is_success() {
            return self.map_refusal(response, &message, session.is_some()).await;
        }
        if asked.is_none() {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let opened = response.headers().get(SESSION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if has_content_type(&response, EVENTS) {
            let events = SseStream::from_bytes_stream(self.counted(response)).boxed();
            return Ok(StreamableHttpPostResponse::Sse(events, opened));
        }
        if !has_content_type(&response, JSON) {
            let message = "it does not speak MCP: its answer is neither JSON nor a stream of events";
            return Err(self.fail(reason::INVALID_SERVER_ANSWER, message));
        }
        let body = self.read_all(response).await?;
        match serde_json::from_slice(&body) {
            Ok(answer) => {
                normalize_response(StreamableHttpPostResponse::Json(answer, opened), asked, session.is_some())
            }
            Err(_) => {
                Err(self
                    .fail(reason::INVALID_SERVER_ANSWER, "it does not speak MCP: its answer is not a JSON-RPC message"))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: DiscoveryHeaders,
    ) -> Result<(), DiscoveryTransportError> {
        if self.terminates_session {
            // The session is over whatever the server answers.
            with_headers(self.client.delete(uri.as_ref()), headers, Some(&session)).send().await?;
        }
        Ok(())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: DiscoveryHeaders,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, DiscoveryTransportError> {
        let at = {
            let mut next = self.next_stream.lock().unwrap_or_else(PoisonError::into_inner);
            let at = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
            *next = Some(at + MIN_STREAM_INTERVAL);
            at
        };
        sleep_until(at).await;
        let mut request =
            with_headers(self.client.get(uri.as_ref()).header(ACCEPT, EVENTS), headers, session.as_deref());
        if let Some(last_event) = last_event {
            request = request.header("last-event-id", last_event);
        }
        // Such a stream is optional, so a refusal is not remembered as a failure.
        let response = request.send().await?;
        if !response.status().is_success() || !has_content_type(&response, EVENTS) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        // A stream that stays silent is ended, and is opened again.
        let silence = self.idle_timeout;
        let chunks = stream::unfold(Box::pin(self.counted(response)), move |mut chunks| async move {
            let chunk = tokio::time::timeout(silence, chunks.next()).await.ok()??;
            Some((chunk, chunks))
        });
        Ok(SseStream::from_bytes_stream(chunks).boxed())
    }
}
