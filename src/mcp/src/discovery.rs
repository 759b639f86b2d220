//! Discovers the tools of a server: once, within one deadline, and in either era of the protocol.
//!
//! `server/discover` is tried first, then `initialize`; from the second time on the era that worked is tried first. rmcp could
//! negotiate that itself, but waits ten seconds for the first answer, and for ever on some servers. The session with a server
//! that sends notifications when its tools change is kept open for them.

use std::time::Duration;

use reqwest::Client;
use rmcp::model::{PaginatedRequestParams, Tool};
use rmcp::service::{ClientInitializeError, ServiceError, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::bounded_client::BoundedClient;
pub use super::bounded_client::ServerFailure;
use super::discovery_request::{DiscoveryRequest, Era};
use super::error_text;
use super::read_budget::ReadPermits;
use super::reason;
use super::sse::SseTransport;
use super::tool_list_changes::{CLOSE_TIMEOUT, Handler, McpService, ToolListChanges, changes};

/// Most pages of a list of tools.
const MAX_PAGES: usize = 1000;

/// Result of a discovery; `T` is the reduced form of a tool.
#[derive(Debug)]
pub struct ServerTools<T> {
    /// Tools of the server.
    pub tools: Vec<T>,
    /// `true` if the server has more tools than were taken.
    pub has_more: bool,
    /// Name and version of the server.
    pub server: (String, String),
    /// Protocol revision that was negotiated.
    pub revision: String,
    /// Era in which the server was queried.
    pub era: Era,
    /// Time for which the list holds, if the server gives one.
    pub ttl: Option<Duration>,
    /// Notifications of changes, if the server sends them.
    pub changes: Option<ToolListChanges>,
}

/// Tool as its server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct McpTool {
    /// Name of the tool at the server.
    pub name: String,
    /// Description of its purpose.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its structured result.
    pub output_schema: Option<Value>,
}

impl From<Tool> for McpTool {
    fn from(tool: Tool) -> Self {
        Self {
            name: tool.name.into_owned(),
            description: tool.description.unwrap_or_default().into_owned(),
            input_schema: Value::Object(tool.input_schema.as_ref().clone()),
            output_schema: tool.output_schema.map(|schema| Value::Object(schema.as_ref().clone())),
        }
    }
}

/// Queries a server for its tools through `client`. The answer is read under the permits `places`. Each tool is reduced as soon
/// as it is read, because its schemas take many times the memory of their text.
///
/// # Errors
/// The reason why the tools are not known.
pub async fn discover<T>(
    client: Client,
    permits: ReadPermits,
    question: &DiscoveryRequest,
    reduce: impl Fn(McpTool) -> T,
) -> Result<ServerTools<T>, ServerFailure> {
    let client = BoundedClient::new(client, permits, question.terminates_session, question.idle_timeout);
    // The steps after the list have time-outs of their own and are no part of the answer.
    match timeout_at(question.deadline, query_server(&client, question, reduce)).await {
        Ok(asked) => finish_discovery(&client, asked?).await,
        Err(_) => Err(timeout_failure(question)),
    }
}

/// Open session with a server, and the result of listing its tools.
struct QueriedServer<T> {
    service: McpService,
    era: Era,
    listed: Result<ToolPages<T>, ServerFailure>,
}

/// Tools of all pages read, whether there are more, and the time for which the list holds.
type ToolPages<T> = (Vec<T>, bool, Option<Duration>);

/// Keeps the session with a server that notifies of changes open, and ends any other.
async fn finish_discovery<T>(client: &BoundedClient, asked: QueriedServer<T>) -> Result<ServerTools<T>, ServerFailure> {
    let QueriedServer { mut service, era, listed } = asked;
    let changes = match &listed {
        Ok(_) => changes(&service, era).await,
        Err(_) => None,
    };
    let info = service.peer().peer_info();
    let server = info.as_ref().and_then(|info| info.server_info.as_ref());
    let server = server.map(|server| (server.name.clone(), server.version.clone())).unwrap_or_default();
    let revision = info.as_ref().map(|info| info.protocol_version.to_string()).unwrap_or_default();
    let changes = match changes {
        Some(subscription) => {
            client.listen();
            Some(ToolListChanges { service, subscription })
        }
        None => {
            let _ = service.close_with_timeout(CLOSE_TIMEOUT).await;
            None
        }
    };
    let (tools, more, holds) = listed?;
    Ok(ServerTools { tools, has_more: more, server, revision, era, ttl: holds, changes })
}

fn timeout_failure(question: &DiscoveryRequest) -> ServerFailure {
    let message = format!("it did not list its tools within {} s (spec.timeout)", question.timeout.as_secs());
    ServerFailure::new(reason::SERVER_TIMEOUT, message)
}

async fn query_server<T>(
    client: &BoundedClient,
    question: &DiscoveryRequest,
    reduce: impl Fn(McpTool) -> T,
) -> Result<QueriedServer<T>, ServerFailure> {
    let eras = match question.era {
        _ if question.sse => [Era::Initialize, Era::Initialize],
        Some(Era::Initialize) => [Era::Initialize, Era::Discover],
        Some(Era::Discover) | None => [Era::Discover, Era::Initialize],
    };
    let patience = if question.sse || question.era.is_some() {
        question.deadline
    } else {
        // A server that does not know the first era may never answer: half of the time is left for the second.
        Instant::now() + question.deadline.saturating_duration_since(Instant::now()) / 2
    };
    let first = match timeout_at(patience, open(client, question, eras[0])).await {
        Ok(Ok(service)) => Ok((service, eras[0])),
        Ok(Err(error)) => Err(Some(error)),
        Err(_) => Err(None),
    };
    let (service, era) = match first {
        Ok(opened) => opened,
        Err(error) => {
            let failed = client.take_failure();
            let hopeless =
                |failed: &ServerFailure| matches!(failed.reason, reason::SERVER_UNREACHABLE | reason::ADDRESS_DENIED);
            if let Some(failed) = failed.filter(|failed| question.sse || hopeless(failed)) {
                return Err(failed);
            }
            match open(client, question, eras[1]).await {
                Ok(service) => (service, eras[1]),
                Err(second) => {
                    let cause = match (eras[1], error) {
                        (Era::Discover, Some(first)) => first,
                        _ => second,
                    };
                    let message = format!("no MCP session could be opened: {}", error_text::startup(&cause));
                    let failed = client.take_failure();
                    return Err(failed.unwrap_or_else(|| ServerFailure::new(reason::INVALID_SERVER_ANSWER, message)));
                }
            }
        }
    };
    client.take_failure();
    let listed = list(&service, question.max_tools, reduce).await.map_err(|error| {
        let message = format!("it does not list its tools: {}", error_text::call(&error));
        client.take_failure().unwrap_or_else(|| ServerFailure::new(reason::INVALID_SERVER_ANSWER, message))
    });
    Ok(QueriedServer { service, era, listed })
}

async fn open(
    client: &BoundedClient,
    question: &DiscoveryRequest,
    era: Era,
) -> Result<McpService, Box<ClientInitializeError>> {
    let handler = Handler::default();
    if question.sse {
        let opened = SseTransport::open(client, &question.url, &question.headers, question.idle_timeout).await;
        let transport = opened.map_err(|failed| {
            client.fail(failed.reason, failed.message);
            Box::new(ClientInitializeError::ConnectionClosed("no stream of events".to_owned()))
        })?;
        return serve_client_with_lifecycle(handler, transport, era.lifecycle()).await.map_err(Box::new);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(question.url.as_str());
    let config = config.custom_headers(question.headers.clone()).reinit_on_expired_session(false);
    let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
    serve_client_with_lifecycle(handler, transport, era.lifecycle()).await.map_err(Box::new)
}

async fn list<T>(
    service: &McpService,
    most: usize,
    reduce: impl Fn(McpTool) -> T,
) -> Result<ToolPages<T>, ServiceError> {
    let (mut tools, mut cursor, mut holds) = (Vec::new(), None, None);
    for _ in 0..MAX_PAGES {
        let page = service.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await?;
        let ttl = page.ttl_ms.map(Duration::from_millis);
        holds = if tools.is_empty() { ttl } else { holds.min(ttl) };
        tools.extend(page.tools.into_iter().map(|tool| reduce(tool.into())));
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() > most {
            break;
        }
    }
    let more = cursor.is_some() || tools.len() > most;
    tools.truncate(most);
    Ok((tools, more, holds))
}
