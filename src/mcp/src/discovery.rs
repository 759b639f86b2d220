//! Asks a server for its tools: once, within one deadline, and whichever of the two eras it speaks.
//!
//! `server/discover` is asked first, then `initialize`; from the second time on first what worked. rmcp could find that out
//! itself, but waits ten seconds for the first answer, and for ever on some servers. A server that tells when its tools change
//! is kept, so that it can.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use reqwest::Client;
use rmcp::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, PaginatedRequestParams, ProtocolVersion, ServerNotification};
use rmcp::model::{SubscriptionFilter, Tool};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, NotificationContext, RoleClient, RunningService};
use rmcp::service::{ServiceError, Subscription, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::bounded_client::BoundedClient;
pub use super::bounded_client::ServerFailure;
use super::error_text;
use super::read_budget::ReadPermits;
use super::session::HANDSHAKE_VERSION;
use super::sse::SseTransport;

/// Most pages of a list of tools.
const MAX_PAGES: usize = 1000;
/// How long the end of a session may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A server, and how it is asked.
#[derive(Debug, Clone)]
pub struct DiscoveryRequest {
    /// Where it is.
    pub url: Url,
    /// Sent with every request.
    pub headers: HashMap<HeaderName, HeaderValue>,
    /// How long everything may take, for the words in which a user reads of it.
    pub timeout: Duration,
    /// When that time is over.
    pub deadline: Instant,
    /// What worked the last time.
    pub era: Option<Era>,
    /// The most tools that are taken.
    pub max_tools: usize,
    /// Whether a session is ended at the server when it is over.
    pub terminates_session: bool,
    /// Whether it speaks the transport of the first revision, over a stream of events.
    pub sse: bool,
    /// How long a stream that only listens may be silent.
    pub idle_timeout: Duration,
}

/// The two ways to talk to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// A handshake opens a session: revisions up to 2025-11-25.
    Initialize,
    /// Each request stands alone: revisions from 2026-07-28 on.
    Discover,
}

impl Era {
    /// The name by which users read of it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Discover => "discover",
        }
    }

    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Initialize => ClientLifecycleMode::Initialize,
            Self::Discover => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
        }
    }
}

/// What a server told; `T` is what is made of a tool.
#[derive(Debug)]
pub struct ServerTools<T> {
    /// Its tools.
    pub tools: Vec<T>,
    /// Whether there are more.
    pub has_more: bool,
    /// Its name and version.
    pub server: (String, String),
    /// The revision that was agreed on.
    pub revision: String,
    /// How it was talked to.
    pub era: Era,
    /// How long it says that this holds.
    pub ttl: Option<Duration>,
    /// The way in which it tells of changes, if it does.
    pub changes: Option<ToolListChanges>,
}

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct McpTool {
    /// Its name at the server.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its structured answer.
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

/// Asks a server, by this client. What is read of it is held in `places`; each tool is reduced as soon as it is read, for its
/// schemas take many times the memory of their text.
///
/// # Errors
/// Why its tools are not known.
pub async fn discover<T>(
    client: Client,
    places: ReadPermits,
    question: &DiscoveryRequest,
    reduce: impl Fn(McpTool) -> T,
) -> Result<ServerTools<T>, ServerFailure> {
    let client = BoundedClient::new(client, places, question.terminates_session, question.idle_timeout);
    // What comes after the list has time-outs of its own, and is no part of the answer.
    match timeout_at(question.deadline, query_server(&client, question, reduce)).await {
        Ok(asked) => finish_discovery(&client, asked?).await,
        Err(_) => Err(timeout_failure(question)),
    }
}

/// A server that was talked to.
struct QueriedServer<T> {
    service: McpService,
    era: Era,
    listed: Result<ToolPages<T>, ServerFailure>,
}

/// The tools, whether there are more, and how long that holds.
type ToolPages<T> = (Vec<T>, bool, Option<Duration>);

/// Goes on listening to a server that tells of changes, and takes leave of any other.
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
    let message = format!("it did not tell its tools within {} s (spec.timeout)", question.timeout.as_secs());
    ServerFailure::new("ServerTimeout", message)
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
        // A server that does not know the one may never answer it: that leaves time for the other.
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
            let hopeless = |failed: &ServerFailure| matches!(failed.reason, "ServerUnreachable" | "AddressDenied");
            if let Some(failed) = failed.filter(|failed| question.sse || hopeless(failed)) {
                return Err(failed);
            }
            match open(client, question, eras[1]).await {
                Ok(service) => (service, eras[1]),
                Err(second) => {
                    let said = match (eras[1], error) {
                        (Era::Discover, Some(first)) => first,
                        _ => second,
                    };
                    let message = format!("it cannot be talked to: {}", error_text::startup(&said));
                    let failed = client.take_failure();
                    return Err(failed.unwrap_or_else(|| ServerFailure::new("InvalidServerAnswer", message)));
                }
            }
        }
    };
    client.take_failure();
    let listed = list(&service, question.max_tools, reduce).await.map_err(|error| {
        let message = format!("it does not list its tools: {}", error_text::call(&error));
        client.take_failure().unwrap_or_else(|| ServerFailure::new("InvalidServerAnswer", message))
    });
    Ok(QueriedServer { service, era, listed })
}

type McpService = RunningService<RoleClient, Handler>;

async fn open(
    client: &BoundedClient,
    question: &DiscoveryRequest,
    era: Era,
) -> Result<McpService, Box<ClientInitializeError>> {
    let handler = Handler { changed: Arc::default() };
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

/// Whether the server tells of changes; in the newer era it has to be asked to.
async fn changes(service: &McpService, era: Era) -> Option<Option<Subscription>> {
    let info = service.peer().peer_info()?;
    let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
    match era {
        _ if !tells => None,
        Era::Initialize => Some(None),
        Era::Discover => {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let listening = timeout(CLOSE_TIMEOUT, service.listen(filter)).await;
            listening.ok()?.ok().map(Some)
        }
    }
}

/// What a server has to say without being asked.
struct Handler {
    changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        let me = Implementation::new("recif", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(Default::default(), me).with_protocol_version(HANDSHAKE_VERSION)
    }
}

/// A server that tells when its tools change. Dropping it ends the session.
pub struct ToolListChanges {
    service: McpService,
    subscription: Option<Subscription>,
}

impl std::fmt::Debug for ToolListChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolListChanges").finish_non_exhaustive()
    }
}

impl ToolListChanges {
    /// Returns when the server says that its tools changed; never when it has gone silent for good.
    pub async fn next(&mut self) {
        let told = self.service.service().changed.clone();
        tokio::select! {
            () = told.notified() => {}
            () = subscribed(&mut self.subscription) => {}
        }
    }

    /// Ends the session.
    pub async fn close(mut self) {
        let _ = self.service.close_with_timeout(CLOSE_TIMEOUT).await;
    }
}

async fn subscribed(subscription: &mut Option<Subscription>) {
    while let Some(open) = subscription {
        match open.next().await {
            Ok(Some(ServerNotification::ToolListChangedNotification(_))) => return,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => *subscription = None,
        }
    }
    std::future::pending().await
}
