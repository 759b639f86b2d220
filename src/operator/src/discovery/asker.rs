//! One discovery: headers and certificates are read, the server is asked, and its answer becomes a catalogue.
//!
//! That goes on in a thread of its own, so that no step waits while a large answer is read. Headers and certificates are read
//! for each discovery and are in memory for as long as it takes.

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
    MCPServer,
    tool_server::{ServerInfo, ValueSource, is_forwarded_header},
};
use http::{HeaderName, HeaderValue};
use identity::{audience, unix_now};
use k8s_openapi::ByteString;
use machine::ApiError;
use mcp::{Answer, Cidr, Era, Failed, McpTool, Places, Question, Reach, Trust, discover};
use meta::PhasedObject as _;
use reqwest::Client;
use tokio::{
    runtime,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use url::Url;

use super::asks::{Asks, Said, Tells, Unasked};

/// How long a token is valid, in seconds.
const TOKEN: u64 = 300;

/// Asks servers over the network.
pub(super) struct Asker {
    cluster: Arc<dyn ChildClient>,
    reach: Reach,
    keys: Keys,
    places: Places,
    thread: OnceLock<Option<runtime::Handle>>,
}

impl Asker {
    /// Addresses in the ranges that are `denied` are not connected to; servers of ours are asked by tokens of these keys.
    pub(super) fn new(cluster: Arc<dyn ChildClient>, denied: Vec<Cidr>, keys: Keys) -> Self {
        Self { cluster, reach: Reach::new(denied), keys, places: Places::default(), thread: OnceLock::new() }
    }

    /// How the server is asked, and by which client.
    async fn question(
        &self,
        target: &DiscoveryTarget,
        era: Option<Era>,
        end: Instant,
    ) -> Result<(Client, Question), Unasked> {
        let failed = |reason, message: String| failure(target, Failed { reason, message });
        let url =
            Url::parse(&target.url).map_err(|error| failed("ServerRefused", format!("spec.url is no URL: {error}")))?;
        self.reach.admit(&url).map_err(|denied| failed("AddressDenied", denied.to_string()))?;
        let mut headers = HashMap::new();
        for header in &target.headers {
            if is_forwarded_header(&header.name) {
                let message = format!("spec.headersFrom {:?} tells who calls, which only the gateway may", header.name);
                return Err(failed("InvalidHeader", message));
            }
            let value = match &header.value_from {
                None => header.value.clone().unwrap_or_default().into_bytes(),
                Some(source) => self.value(target, source).await?,
            };
            let bad = |what: &str| failed("InvalidHeader", format!("spec.headersFrom {:?} has {what}", header.name));
            let name = HeaderName::try_from(&header.name).map_err(|_| bad("a name that is no header's"))?;
            let mut value = HeaderValue::from_bytes(value.trim_ascii())
                .map_err(|_| bad("a value that no header may have: it must be printable text in one line"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        // Only sidecars of ours know what to do with it.
        if let Some(keys) = self.keys.get().filter(|_| target.kind == MCPServer::KIND) {
            let audience = audience(target.kind, &target.key.namespace, &target.key.name);
            let token = keys.token(&audience, None, unix_now() + TOKEN);
            let mut value = HeaderValue::try_from(token).map_err(|_| failed("InvalidHeader", "no token".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-recif-caller"), value);
        }
        let ca = match &target.tls.ca_secret_ref {
            Some(secret) => Some(self.value(target, &secret.clone().into()).await?),
            None => None,
        };
        let trust = match ca {
            _ if target.tls.insecure_skip_verify => Trust::Anyone,
            Some(pem) => Trust::Also(pem),
            None => Trust::System,
        };
        let client = self.reach.client(&trust).map_err(|error| failed("InvalidCertificate", error.to_string()))?;
        let question = Question {
            url,
            headers,
            timeout: target.timeout,
            end,
            era,
            most: MAX_TOOLS,
            terminates: target.terminates,
            sse: target.sse,
            silence: target.silence,
        };
        Ok((client, question))
    }

    /// A value, read past the cache, which holds none.
    async fn value(&self, target: &DiscoveryTarget, source: &ValueSource) -> Result<Vec<u8>, Unasked> {
        let kind = if source.is_secret() { ChildKind::Secret } else { ChildKind::ConfigMap };
        let child = ChildRef { kind, namespace: target.key.namespace.clone(), name: source.name.clone() };
        let failed = |message| failure(target, Failed { reason: "InvalidHeader", message });
        let mut data: BTreeMap<String, String> = match self.cluster.get_data(&child).await {
            Ok(data) => data,
            Err(ApiError::Transient { message, .. }) => {
                let why = Failed { reason: "InvalidHeader", message: format!("{child} cannot be read: {message}") };
                return Err(Unasked::Unready(undiscovered(why, &target.url)));
            }
            Err(error) => return Err(failed(format!("{child} cannot be read: {error}"))),
        };
        let text = data.remove(&source.key).ok_or_else(|| failed(format!("{child} has no key {:?}", source.key)))?;
        if !source.is_secret() {
            return Ok(text.into_bytes());
        }
        let bytes: Result<ByteString, _> = serde_json::from_value(text.into());
        bytes.map(|bytes| bytes.0).map_err(|_| failed(format!("{child} cannot be read: its values are no base64")))
    }

    /// The thread of the discoveries; it begins with the first of them.
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
impl Asks for Asker {
    async fn ask(&self, target: &DiscoveryTarget, era: Option<Era>) -> Result<Said, Unasked> {
        let end = Instant::now() + target.timeout;
        let (client, question) =
            timeout_at(end, self.question(target, era, end)).await.map_err(|_| unread(target))??;
        let places = self.places.clone();
        let asking = async move { discover(client, places, &question, reduced).await.map(said) };
        let running = match self.thread() {
            Some(thread) => thread.spawn(asking),
            None => tokio::spawn(asking),
        };
        let stumbled = || Failed {
            reason: "InvalidServerAnswer",
            message: "its answer made the operator stumble; please report it".to_owned(),
        };
        let answer = Joined(running).end().await.unwrap_or_else(|| Err(stumbled()));
        answer.map_err(|failed| failure(target, failed))
    }
}

fn reduced(tool: McpTool) -> CompactTool {
    CompactTool::from(&McpToolDefinition {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
        output_schema: tool.output_schema,
    })
}

fn said(answer: Answer<CompactTool>) -> Said {
    let short = |text: String| text.chars().take(256).collect();
    let (name, version) = answer.server;
    Said {
        discovered: Discovered {
            catalog: Catalog::of(answer.tools, answer.more),
            server: ServerInfo { name: short(name), version: short(version), protocol_version: short(answer.revision) },
            era: answer.era.as_str().to_owned(),
            restless: false,
        },
        era: answer.era,
        holds: answer.holds.unwrap_or_default(),
        changes: answer.changes.map(|changes| Box::new(changes) as Box<dyn Tells>),
    }
}

fn unread(target: &DiscoveryTarget) -> Unasked {
    let message = "what spec.headersFrom and spec.tls name was not read in time".to_owned();
    Unasked::Unready(DiscoveryError {
        reason: "InvalidHeader",
        message: format!("{}: {message}", subject(&target.url)),
    })
}

fn failure(target: &DiscoveryTarget, failed: Failed) -> Unasked {
    Unasked::Failed(undiscovered(failed, &target.url))
}

fn subject(url: &str) -> String {
    let host = Url::parse(url).map(|url| url.authority().rsplit('@').next().unwrap_or_default().to_owned());
    host.map(|host| format!("the MCP server at {host}")).unwrap_or_else(|_| "the MCP server".to_owned())
}

/// A failure as the object's condition tells it.
fn undiscovered(failed: Failed, url: &str) -> DiscoveryError {
    let subject = subject(url);
    let message = match failed.message.strip_prefix("it ") {
        Some(rest) => format!("{subject} {rest}"),
        None => format!("{subject}: {}", failed.message),
    };
    DiscoveryError { reason: failed.reason, message }
}

/// A task that ends with whoever waits for it.
struct Joined<T>(JoinHandle<T>);

impl<T> Joined<T> {
    /// What it came to; `None` after a panic.
    async fn end(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

impl<T> Drop for Joined<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
