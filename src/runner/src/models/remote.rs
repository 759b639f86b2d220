//! Model behind a provider's HTTP API.
//!
//! A provider implements two things: the encoding of a request, and the decoding of the frames of an answer. Both are
//! pure functions; connections, timeouts and retries are common to all providers and are here and in [`super::http`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crds::digest::digest;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use mcp::Trust;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use telemetry::semconv::{SERVER_ADDRESS, SERVER_PORT};

use super::authorizer::{self, RequestAuthorizer};
use super::call_span::gets_context;
use super::credentials::{AUTHORITIES, own_variable};
use super::error::ModelError;
use super::frames::{self, Frames};
use super::http::{Http, ProviderRequest, Timeouts, silent};
use super::refusal;
use super::refused_schemas::RefusedSchemas;
use super::transcript::in_words;
use super::{Chunk, Credentials, Model, ModelRef, ModelRequest};
use crate::tools::expand;

/// Protocol of a provider.
pub(super) trait Protocol: Send + Sync + 'static {
    /// Encodes `request`.
    ///
    /// # Errors
    /// It contains something that this provider does not support.
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError>;

    /// Returns the source of credentials that are not known when the request is encoded.
    fn authorizer(&self) -> Option<&dyn RequestAuthorizer> {
        None
    }

    /// Splits the bytes of an answer into frames.
    fn split(&self, bytes: Frames) -> Frames {
        frames::events(bytes)
    }

    /// Creates a decoder for one answer.
    fn reader(&self) -> Box<dyn Reader>;
}

/// Stateful decoder of one answer.
pub(super) trait Reader: Send {
    /// Decodes one frame and appends its chunks.
    ///
    /// # Errors
    /// It cannot be decoded, or reports a failure of the provider.
    fn read(&mut self, piece: &[u8], chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;

    /// Reports whether the answer is complete.
    fn done(&self) -> bool;

    /// Appends the chunks that are known only at the end.
    ///
    /// # Errors
    /// The answer is not complete.
    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;
}

/// Connection to a provider, alike for all protocols.
#[derive(Clone)]
pub(super) struct Connection {
    http: Http,
    /// Headers besides those of the protocol.
    headers: HeaderMap,
    /// Set when the caller's own key is sent.
    passthrough: bool,
    /// Longest silence, if it is not the default.
    silence: Option<Duration>,
}

impl Connection {
    /// Creates the connection to the provider of `reference`; `credentials` looks up the variables of its headers and authorities.
    ///
    /// # Errors
    /// The setting that is missing or invalid, without its value.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<Self, String> {
        let provider = &reference.provider;
        let mut headers = HeaderMap::new();
        for (name, value) in &reference.headers {
            let parsed: HeaderName =
                name.parse().map_err(|_| format!("`{name}` of model provider `{provider}` is not a header name"))?;
            let value = expand(value, |variable| own_variable(variable, name, credentials))
                .map_err(|problem| format!("header {name} of model provider `{provider}` refers to {problem}"))?;
            // A mounted Secret often ends with a newline, which is invalid in a header.
            let mut value = HeaderValue::from_str(value.trim_end_matches(['\r', '\n'])).map_err(|_| {
                format!("header {name} of model provider `{provider}` has a value that no header may hold")
            })?;
            value.set_sensitive(true);
            headers.insert(parsed, value);
        }
        let authorities = |variable: &str| own_variable(variable, AUTHORITIES, credentials);
        let trust = reference.tls.as_ref().map_or(Ok(Trust::System), |tls| tls.trust_by(authorities));
        let http = trust.and_then(|trust| http.with_trust(&trust));
        let http = http.map_err(|problem| format!("`tls` of model provider `{provider}`: {problem}"))?;
        Ok(Self { http, headers, passthrough: reference.passthrough, silence: reference.timeout })
    }
}

/// Model that is reached over HTTP.
pub(super) struct Remote<P> {
    protocol: Arc<P>,
    connection: Connection,
    refused: Arc<RefusedSchemas>,
}

impl<P: Protocol> Remote<P> {
    /// Creates a model that speaks `protocol`.
    pub(super) fn new(protocol: P, connection: Connection) -> Self {
        Self { protocol: Arc::new(protocol), connection, refused: Arc::default() }
    }
}

impl<P: Protocol> Model for Remote<P> {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (protocol, connection, refused) = (self.protocol.clone(), self.connection.clone(), self.refused.clone());
        let answer = async move {
            if connection.passthrough && request.key.is_none() {
                return Err(ModelError::no_key());
            }
            let schema = request.output.as_ref().and_then(|output| output.schema.as_ref());
            let Some(schema) = schema.map(digest) else { return ask(&*protocol, &connection, &request).await };
            let is_refused = refused.contains(&schema);
            if !is_refused {
                match ask(&*protocol, &connection, &request).await {
                    Err(error) if error.may_be_of_schema() => {
                        tracing::debug!("asked again with the schema in words: {error}");
                    }
                    settled => return settled,
                }
            }
            let answer = ask(&*protocol, &connection, &in_words(&request)).await?;
            if !is_refused {
                refused.add(schema);
            }
            Ok(answer)
        };
        stream::once(answer).try_flatten().boxed()
    }

    fn needs_key(&self) -> bool {
        self.connection.passthrough
    }
}

/// Sends `request`, again where that may help, and returns its answer once that has begun.
async fn ask(
    protocol: &impl Protocol,
    connection: &Connection,
    request: &ModelRequest,
) -> Result<BoxStream<'static, Result<Chunk, ModelError>>, ModelError> {
    let Connection { http, headers, silence, .. } = connection;
    let mut call = protocol.write(request)?;
    for (name, value) in headers {
        call.headers.insert(name, value.clone());
    }
    let trace = request.account.trace().clone();
    trace.set(SERVER_ADDRESS, call.url.host_str().unwrap_or_default().to_owned());
    if let Some(port) = call.url.port_or_known_default() {
        trace.set(SERVER_PORT, port);
    }
    if gets_context(&call.url) {
        call.headers.extend(trace.headers());
    }
    let timeouts = Timeouts::new(*silence, request.has_fallback);
    let has_fallback = request.has_fallback;
    let attempt = || {
        let answer = begin(protocol, http, &call, timeouts);
        async move {
            if !has_fallback {
                return answer.await;
            }
            // Headers and comments are no answer: while another model is left, they do not prolong the wait for one.
            tokio::time::timeout(timeouts.first, answer).await.map_err(|_| silent(timeouts.first))?
        }
    };
    http.retrying(has_fallback, &trace, attempt).await
}

/// Sends `call` and waits for the first chunk, so that a failure before it can be retried.
async fn begin(
    protocol: &impl Protocol,
    http: &Http,
    call: &ProviderRequest,
    timeouts: Timeouts,
) -> Result<BoxStream<'static, Result<Chunk, ModelError>>, ModelError> {
    let (response, sent) = authorizer::send(http, protocol.authorizer(), call, timeouts.first).await?;
    let pieces = protocol.split(frames::bytes(response, timeouts));
    let mut chunks = chunks(pieces, protocol.reader(), sent).boxed();
    let first = chunks.try_next().await?;
    Ok(stream::iter(first.map(Ok)).chain(chunks).boxed())
}

/// Decodes the frames of the answer to a request with the headers `sent`.
fn chunks(
    pieces: Frames,
    reader: Box<dyn Reader>,
    sent: HeaderMap,
) -> impl futures::Stream<Item = Result<Chunk, ModelError>> + Send + 'static {
    let state = (pieces, reader, sent, VecDeque::new(), false);
    stream::try_unfold(state, |(mut pieces, mut reader, sent, mut ready, mut ended)| async move {
        loop {
            if let Some(chunk) = ready.pop_front() {
                let chunk = match chunk {
                    Chunk::Usage(usage) => Chunk::Usage(usage.checked()?),
                    other => other,
                };
                return Ok(Some((chunk, (pieces, reader, sent, ready, ended))));
            }
            if ended {
                return Ok(None);
            }
            match pieces.try_next().await? {
                Some(piece) => {
                    let read = reader.read(&piece, &mut ready);
                    if read.as_ref().is_err_and(|error| error.is_reported) {
                        let said = refusal::piece_message(&piece, &sent);
                        tracing::warn!(said, "a model's provider failed while it answered");
                    }
                    read?;
                }
                None => ended = true,
            }
            if ended || reader.done() {
                reader.end(&mut ready)?;
                ended = true;
            }
        }
    })
}
