//! Session with one MCP server, in which tools are called.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use http::HeaderMap;
use reqwest::Client;
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientConfig, ContentBlock};
use rmcp::model::{Implementation, ProtocolVersion, RequestParamsMeta as _, ResourceContents};
use rmcp::service::{ClientLifecycleMode, RoleClient, RunningService, ServiceError, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Map, Value};
use url::Url;

use super::bounded_client::{BoundedClient, STREAM_IDLE_TIMEOUT};
use super::error_text;
use super::http::SessionHttpClient;
use super::sse::SseTransport;
use super::trust::Trust;

/// Newest protocol revision with a handshake.
pub(super) const HANDSHAKE_VERSION: ProtocolVersion = ProtocolVersion::V_2025_11_25;

/// Reason why a server gave no answer. The text is made for people and models and holds no header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum McpError {
    /// There is no connection, or it broke, or the answer is not MCP.
    #[error("the MCP server at {host} {problem}")]
    Broken {
        /// Host and port.
        host: String,
        /// Failure, as the rest of a sentence.
        problem: String,
    },
    /// The server refused the request (a JSON-RPC error): an unknown tool, wrong arguments.
    #[error("the MCP server refused: {message}")]
    Refused {
        /// The JSON-RPC code.
        code: i32,
        /// Message of the server.
        message: String,
    },
    /// The tool ran and says that it failed.
    #[error("{0}")]
    Tool(String),
    /// No answer in time.
    #[error("the MCP server at {host} did not answer within {} s", .after.as_secs())]
    Timeout {
        /// Host and port.
        host: String,
        /// Time that was waited.
        after: Duration,
    },
}

/// Server and the parameters of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEndpoint {
    /// URL of the server.
    pub url: Url,
    /// Headers of every request.
    pub headers: HeaderMap,
    /// `true` for a server that speaks HTTP+SSE, the transport of the first revision.
    pub sse: bool,
    /// Verification of the server's certificate by the HTTP client that is used: a client with another one has a session of its
    /// own.
    pub trust: Trust,
}

/// Context of the trace that a call is part of ([W3C Trace Context](https://www.w3.org/TR/trace-context/)). It is sent in `_meta`,
/// as [SEP-414](https://modelcontextprotocol.io/seps/414-request-meta) says, and as headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTrace {
    /// Trace and span.
    pub traceparent: String,
    /// Values that vendors added.
    pub tracestate: Option<String>,
    /// Revision of the protocol that the server speaks, once the call has begun.
    pub revision: OnceLock<String>,
}

impl ServerEndpoint {
    /// Returns an endpoint that is called without headers, over Streamable HTTP.
    pub fn at(url: &Url) -> Self {
        Self { url: url.clone(), headers: HeaderMap::new(), sse: false, trust: Trust::System }
    }

    fn host(&self) -> &str {
        self.url.authority().rsplit('@').next().unwrap_or_default()
    }
}

/// Connection to one server. Dropping it ends the server's session.
pub(crate) struct McpSession {
    service: RunningService<RoleClient, ClientConfig>,
    host: String,
}

impl McpSession {
    /// Connects to a server and negotiates a revision, within `deadline`.
    ///
    /// # Errors
    /// [`McpError::Broken`] or [`McpError::Timeout`].
    pub(crate) async fn connect(client: Client, server: &ServerEndpoint, deadline: Duration) -> Result<Self, McpError> {
        let host = server.host().to_owned();
        match tokio::time::timeout(deadline, service(client, server)).await {
            Ok(Ok(service)) => Ok(Self { service, host }),
            Ok(Err(problem)) => Err(McpError::Broken { host, problem: format!("cannot be used: {problem}") }),
            Err(_) => Err(McpError::Timeout { host, after: deadline }),
        }
    }

    /// Calls a tool and returns its texts, joined by line breaks, with a line in brackets for each content that is no text.
    /// Dropping the future ends the call.
    ///
    /// # Errors
    /// Any [`McpError`].
    pub(crate) async fn call_tool(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        deadline: Duration,
        trace: Option<&CallTrace>,
    ) -> Result<String, McpError> {
        let mut request = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        if let Some(CallTrace { traceparent, tracestate, revision }) = trace {
            if let Some(info) = self.service.peer().peer_info() {
                // A value that is there already is the same.
                let _ = revision.set(info.protocol_version.to_string());
            }
            request.set_traceparent(traceparent);
            if let Some(state) = tracestate {
                request.set_tracestate(state);
            }
        }
        let result = self.within(deadline, self.service.call_tool(request)).await?;
        let failed = result.is_error == Some(true);
        let text = text(result);
        if failed { Err(McpError::Tool(text)) } else { Ok(text) }
    }

    /// Reports whether the session is known to be over.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        answer: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, McpError> {
        let broken = |problem: String| McpError::Broken { host: self.host.clone(), problem };
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(ServiceError::McpError(error))) => {
                Err(McpError::Refused { code: error.code.0, message: error.message.into_owned() })
            }
            Ok(Err(ServiceError::TransportClosed)) => Err(broken("ended the connection".into())),
            Ok(Err(ServiceError::UnexpectedResponse)) => {
                Err(broken("sent an answer that does not fit the request".into()))
            }
            Ok(Err(error)) => Err(broken(format!("gave no answer: {}", error_text::call(&error)))),
            Err(_) => Err(McpError::Timeout { host: self.host.clone(), after: deadline }),
        }
    }
}

async fn service(client: Client, server: &ServerEndpoint) -> Result<RunningService<RoleClient, ClientConfig>, String> {
    let headers: HashMap<_, _> = server.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let me = Implementation::new("recif", env!("CARGO_PKG_VERSION"));
    let config = ClientConfig::new(Default::default(), me);
    let served = if server.sse {
        let client = BoundedClient::for_calls(client);
        let transport = SseTransport::open(&client, &server.url, &headers, STREAM_IDLE_TIMEOUT).await;
        let transport = transport.map_err(|failed| failed.message)?;
        let config = config.with_protocol_version(HANDSHAKE_VERSION);
        serve_client_with_lifecycle(config, transport, ClientLifecycleMode::Initialize).await
    } else {
        let place = StreamableHttpClientTransportConfig::with_uri(server.url.as_str()).custom_headers(headers);
        let transport = StreamableHttpClientTransport::with_client(SessionHttpClient(client), place);
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: Some(HANDSHAKE_VERSION),
        };
        serve_client_with_lifecycle(config, transport, lifecycle).await
    };
    served.map_err(|error| error_text::startup(&error))
}

/// Renders the content of a server's answer as text.
fn text(result: CallToolResult) -> String {
    let mut parts: Vec<String> = result.content.into_iter().map(part).collect();
    if parts.is_empty()
        && let Some(structured) = result.structured_content
    {
        parts.push(structured.to_string());
    }
    parts.join("\n")
}

fn part(content: ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => format!("[an image of type {}, which cannot be shown]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[audio of type {}, which cannot be heard]", audio.mime_type),
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.name, link.uri),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { uri, .. } => format!("[binary resource {uri}]"),
            _ => "[a resource of an unknown kind]".into(),
        },
        _ => "[content of an unknown kind]".into(),
    }
}
