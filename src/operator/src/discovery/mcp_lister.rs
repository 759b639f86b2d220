//! Queries an MCP server once: reads headers and certificates, sends the query, and turns the response into a catalogue.
//!
//! The query runs on a thread of its own, so that no step waits while a large response is parsed. Headers and certificates are read for
//! each query and are in memory only for as long as it takes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

use actions::{
    discovery::{Catalog, CompactTool, Discovered, DiscoveryError, DiscoveryTarget, MAX_TOOLS, McpToolDefinition},
    ports::{ChildClient, ChildKind, ChildRef},
};
use async_trait::async_trait;
use cluster::cache::Keys;
use crds::{
    MCPServer, reason,
    tool_server::{ServerInfo, ValueSource, is_forwarded_header},
};
use http::{HeaderName, HeaderValue};
use identity::{audience, unix_now};
use k8s_openapi::ByteString;
use machine::ApiError;
use mcp::{DiscoveryRequest, EgressClients, Era, McpTool, ReadPermits, ServerFailure, ServerTools, Trust, discover};
use meta::PhasedObject as _;
use reqwest::Client;
use tokio::{
    runtime,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use url::Url;

use super::{
    lister::{ChangeStream, ListError, ToolLister, ToolListing},
    network::DiscoveryNetwork,
};

/// Lifetime of a token, in seconds.
const TOKEN_TTL_SECS: u64 = 300;

/// Lister that queries servers over the network.
pub(super) struct McpToolLister {
    cluster: Arc<dyn ChildClient>,
    network: DiscoveryNetwork,
    egress: EgressClients,
    keys: Keys,
    permits: ReadPermits,
    thread: OnceLock<Option<runtime::Handle>>,
}

impl McpToolLister {
    /// Creates a lister that queries in `network`; our own servers get tokens of `keys`.
    pub(super) fn new(cluster: Arc<dyn ChildClient>, network: DiscoveryNetwork, keys: Keys) -> Self {
        Self {
            cluster,
            egress: EgressClients::new(network.denied.clone()),
            network,
            keys,
            permits: ReadPermits::default(),
            thread: OnceLock::new(),
        }
    }

    /// Builds the query, and the client that sends it.
    async fn request(
        &self,
        target: &DiscoveryTarget,
        era: Option<Era>,
        end: Instant,
    ) -> Result<(Client, DiscoveryRequest), ListError> {
        let failed = |reason, message: String| failure(target, ServerFailure { reason, message });
        let url = Url::parse(&target.url)
            .map_err(|error| failed(reason::SERVER_REFUSED, format!("spec.url is not a URL: {error}")))?;
        let url = self.network.resolve(url);
        self.network.closed.check(&url).map_err(|why| failed(reason::ADDRESS_DENIED, why))?;
        self.egress.check_url(&url).map_err(|denied| failed(reason::ADDRESS_DENIED, denied.to_string()))?;
        let mut headers = HashMap::new();
        for header in &target.headers {
            if is_forwarded_header(&header.name) {
                let message =
                    format!("spec.headersFrom {:?} names the caller, which only the gateway may do", header.name);
                return Err(failed(reason::INVALID_HEADER, message));
            }
            let value = match &header.value_from {
                None => header.value.clone().unwrap_or_default().into_bytes(),
                Some(source) => self.value(target, source).await?,
            };
            let bad =
                |what: &str| failed(reason::INVALID_HEADER, format!("spec.headersFrom {:?} has {what}", header.name));
            let name = HeaderName::try_from(&header.name).map_err(|_| bad("an invalid header name"))?;
            let mut value = HeaderValue::from_bytes(value.trim_ascii())
                .map_err(|_| bad("a value that no header may have: it must be printable text in one line"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        // Only our own sidecars know what to do with it.
        if let Some(keys) = self.keys.get().filter(|_| target.kind == MCPServer::KIND) {
            let audience = audience(target.kind, &target.key.namespace, &target.key.name);
            let token = keys.token(&audience, None, unix_now() + TOKEN_TTL_SECS);
            let mut value =
                HeaderValue::try_from(token).map_err(|_| failed(reason::INVALID_HEADER, "no token".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-recif-caller"), value);
        }
        let ca = match &target.tls.ca_secret_ref {
            Some(secret) => Some(self.value(target, &secret.clone().into()).await?),
            None => None,
        };
        let trust = match ca {
            _ if target.tls.insecure_skip_verify => Trust::Unverified,
            // Nothing is trusted by an object that is older than the rule of the CRD.
            ca if !target.tls.system_cas => Trust::Only(ca.unwrap_or_default()),
            Some(pem) => Trust::Additional(pem),
            None => Trust::System,
        };
        let client =
            self.egress.client(&trust).map_err(|error| failed(reason::INVALID_CERTIFICATE, error.to_string()))?;
        let question = DiscoveryRequest {
            url,
            headers,
            timeout: target.timeout,
            deadline: end,
            era,
            max_tools: MAX_TOOLS,
            terminates_session: target.terminates,
            sse: target.sse,
            idle_timeout: target.silence,
        };
        Ok((client, question))
    }

    /// Reads a value past the cache, which holds none.
    async fn value(&self, target: &DiscoveryTarget, source: &ValueSource) -> Result<Vec<u8>, ListError> {
        let kind = if source.is_secret() { ChildKind::Secret } else { ChildKind::ConfigMap };
        let child = ChildRef { kind, namespace: target.key.namespace.clone(), name: source.name.clone() };
        let failed = |message| failure(target, ServerFailure { reason: reason::INVALID_HEADER, message });
        let mut data: BTreeMap<String, String> = match self.cluster.get_data(&child).await {
            Ok(data) => data,
            Err(ApiError::Transient { message, .. }) => {
                let why = ServerFailure {
                    reason: reason::INVALID_HEADER,
                    message: format!("{child} cannot be read: {message}"),
                };
                return Err(ListError::Unready(discovery_error(why, &target.url)));
            }
            Err(error) => return Err(failed(format!("{child} cannot be read: {error}"))),
        };
        let text = data.remove(&source.key).ok_or_else(|| failed(format!("{child} has no key {:?}", source.key)))?;
        if !source.is_secret() {
            return Ok(text.into_bytes());
        }
        let bytes: Result<ByteString, _> = serde_json::from_value(text.into());
        bytes.map(|bytes| bytes.0).map_err(|_| failed(format!("{child} cannot be read: its values are not base64")))
    }

    /// Returns the thread of the queries, which starts with the first of them.
    fn thread(&self) -> Option<&runtime::Handle> {
        let begin = || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
            let handle = runtime.handle().clone();
            let run = move || runtime.block_on(std::future::pending::<()>());
            std::thread::Builder::new().name("discoveries".to_owned()).spawn(run).ok()?;
            Some(handle)
        };
        self.thread.get_or_init(begin).as_ref()
    }
}

#[async_trait]
impl ToolLister for McpToolLister {
    async fn list_tools(&self, target: &DiscoveryTarget, era: Option<Era>) -> Result<ToolListing, ListError> {
        let end = Instant::now() + target.timeout;
        let (client, question) =
            timeout_at(end, self.request(target, era, end)).await.map_err(|_| values_timeout(target))??;
        let permits = self.permits.clone();
        let asking = async move { discover(client, permits, &question, compact_tool).await.map(listing) };
        let running = match self.thread() {
            Some(thread) => thread.spawn(asking),
            None => tokio::spawn(asking),
        };
        let stumbled = || ServerFailure {
            reason: reason::INVALID_SERVER_ANSWER,
            message: "its answer caused a panic in the operator; please report it".to_owned(),
        };
        let answer = ScopedTask(running).join().await.unwrap_or_else(|| Err(stumbled()));
        answer.map_err(|failed| failure(target, failed))
    }
}

fn compact_tool(tool: McpTool) -> CompactTool {
    CompactTool::from(&McpToolDefinition {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
        output_schema: tool.output_schema,
    })
}

fn listing(answer: ServerTools<CompactTool>) -> ToolListing {
    let short = |text: String| text.chars().take(256).collect();
    let (name, version) = answer.server;
    ToolListing {
        discovered: Discovered {
            catalog: Catalog::of(answer.tools, answer.has_more),
            server: ServerInfo { name: short(name), version: short(version), protocol_version: short(answer.revision) },
            era: answer.era.as_str().to_owned(),
            changes: 0,
        },
        era: answer.era,
        ttl: answer.ttl.unwrap_or_default(),
        changes: answer.changes.map(|changes| Box::new(changes) as Box<dyn ChangeStream>),
    }
}

fn values_timeout(target: &DiscoveryTarget) -> ListError {
    let message = "what spec.headersFrom and spec.tls name was not read in time".to_owned();
    ListError::Unready(DiscoveryError {
        reason: reason::INVALID_HEADER,
        message: format!("{}: {message}", subject(&target.url)),
    })
}

fn failure(target: &DiscoveryTarget, failed: ServerFailure) -> ListError {
    ListError::Failed(discovery_error(failed, &target.url))
}

fn subject(url: &str) -> String {
    let host = Url::parse(url).map(|url| url.authority().rsplit('@').next().unwrap_or_default().to_owned());
    host.map(|host| format!("the MCP server at {host}")).unwrap_or_else(|_| "the MCP server".to_owned())
}

/// Words a failure for the object's condition.
fn discovery_error(failed: ServerFailure, url: &str) -> DiscoveryError {
    let subject = subject(url);
    let message = match failed.message.strip_prefix("it ") {
        Some(rest) => format!("{subject} {rest}"),
        None => format!("{subject}: {}", failed.message),
    };
    DiscoveryError { reason: failed.reason, message }
}

/// Task that is aborted when its handle is dropped.
struct ScopedTask<T>(JoinHandle<T>);

impl<T> ScopedTask<T> {
    /// Waits for the result; `None` after a panic.
    async fn join(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

impl<T> Drop for ScopedTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use crds::reason::DISCOVERY_FAILURES;

    #[test]
    fn every_reason_of_the_client_is_one_of_the_api() {
        let unknown: Vec<_> = mcp::reason::ALL.iter().filter(|reason| !DISCOVERY_FAILURES.contains(reason)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
