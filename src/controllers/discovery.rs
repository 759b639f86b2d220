//! Servers that are asked for their tools: one task for each, which asks, tells the object's queue, and waits for its next turn.
//!
//! Asking goes on beside the steps: on a thread of its own, as long as the server likes within its deadline, and so many at a
//! time. Those that failed the last time share places of their own, so that however many of them hang, the others wait for
//! nobody. Headers and certificates are read for each discovery and are in memory for as long as it takes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use actions::{
    discovery::{Definition, Discovered, Discoveries, MOST_TOOLS, Outcome, Target, Undiscovered, When},
    machine::Key,
    ports::{ChildKind, ChildRef, Cluster},
};
use crds::tool_server::{CaSecret, ServerInfo, ValueSource};
use http::{HeaderName, HeaderValue};
use k8s_openapi::ByteString;
use tokio::{
    runtime,
    sync::Semaphore,
    task::{AbortHandle, JoinHandle},
    time::sleep,
};
use url::Url;

use crate::mcp::{Answer, Changes, Cidr, Era, Failed, Question, Reach, Trust, discover};

/// How many are asked at a time: of those that answered the last time, and of those that did not.
const WELL: usize = 64;
const AILING: usize = 32;
/// A server that fails is asked again after this, then ever more rarely up to its resync.
const SOON: Duration = Duration::from_secs(2);
/// The longest that a server may say its list holds.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Changes that a server tells are looked at this often at most.
const PAUSE: Duration = Duration::from_secs(1);

/// Tells the queue of a kind that there is news for an object.
type Wake = Box<dyn Fn(&'static str, &Key) + Send + Sync>;

/// The servers.
pub(super) struct Discoverer {
    shared: Arc<Shared>,
    servers: Mutex<HashMap<(&'static str, Key), Server>>,
}

struct Shared {
    cluster: Arc<dyn Cluster>,
    reach: Reach,
    well: Semaphore,
    ailing: Semaphore,
    thread: OnceLock<Option<runtime::Handle>>,
    wake: OnceLock<Wake>,
}

/// A server that is asked again and again; dropping it ends that.
struct Server {
    target: Target,
    when: When,
    last: Arc<Mutex<Option<Arc<Outcome>>>>,
    task: Aborted,
}

struct Aborted(AbortHandle);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Discoverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discoverer").field("servers", &self.servers().len()).finish_non_exhaustive()
    }
}

impl Discoverer {
    /// Asks nobody yet. Addresses in the ranges that are `denied` are not connected to.
    pub(super) fn new(cluster: Arc<dyn Cluster>, denied: Vec<Cidr>) -> Self {
        let shared = Shared {
            cluster,
            reach: Reach::new(denied),
            well: Semaphore::new(WELL),
            ailing: Semaphore::new(AILING),
            thread: OnceLock::new(),
            wake: OnceLock::new(),
        };
        Self { shared: Arc::new(shared), servers: Mutex::default() }
    }

    /// Whom news is told.
    pub(super) fn on_news(&self, wake: impl Fn(&'static str, &Key) + Send + Sync + 'static) {
        // Set once, when the queues are made.
        let _ = self.shared.wake.set(Box::new(wake));
    }

    /// The object is gone.
    pub(super) fn forget(&self, kind: &'static str, key: &Key) {
        self.servers().remove(&(kind, key.clone()));
    }

    /// Asks nobody any more and forgets what was said: whoever leads meanwhile asks for itself.
    pub(super) fn clear(&self) {
        self.servers().clear();
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<(&'static str, Key), Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Discoveries for Discoverer {
    fn look(&self, target: &Target, when: When) -> Option<Arc<Outcome>> {
        let mut servers = self.servers();
        let place = (target.kind, target.key.clone());
        let known = servers.get(&place);
        if let Some(server) = known.filter(|server| server.target == *target && !server.task.0.is_finished()) {
            let last = server.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // Who waits now does not wait for a turn that may be long in coming.
            if last.is_some() || when == When::InTurn || server.when == When::Now {
                return last;
            }
        }
        let delay = match when {
            When::InTurn if known.is_none() => target.resync.mul_f64(chance()),
            _ => Duration::ZERO,
        };
        let last = Arc::<Mutex<Option<Arc<Outcome>>>>::default();
        let turns = Turns { shared: self.shared.clone(), target: target.clone(), last: last.clone(), era: None };
        let task = Aborted(tokio::spawn(turns.run(delay)).abort_handle());
        servers.insert(place, Server { target: target.clone(), when, last, task });
        None
    }
}

/// The turns of one server.
struct Turns {
    shared: Arc<Shared>,
    target: Target,
    last: Arc<Mutex<Option<Arc<Outcome>>>>,
    era: Option<Era>,
}

impl Turns {
    async fn run(mut self, delay: Duration) {
        sleep(delay).await;
        let mut failures = 0_u32;
        loop {
            let lane = if failures == 0 { &self.shared.well } else { &self.shared.ailing };
            let place = lane.acquire().await;
            let answer = self.ask().await;
            drop(place);
            let (outcome, holds, changes) = match answer {
                Ok(answer) => {
                    self.era = Some(answer.era);
                    let (holds, changes) = (answer.holds.unwrap_or_default(), answer.changes);
                    (
                        Ok(discovered(answer.tools, answer.more, answer.server, answer.revision, answer.era)),
                        holds,
                        changes,
                    )
                }
                Err(failed) => (Err(undiscovered(failed, &self.target.url)), Duration::ZERO, None),
            };
            failures = if outcome.is_ok() { 0 } else { failures.saturating_add(1) };
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(outcome));
            if let Some(wake) = self.shared.wake.get() {
                wake(self.target.kind, &self.target.key);
            }
            let usual = self.target.resync;
            let pause = match failures {
                0 => usual.max(holds.min(LONGEST)),
                failures => usual.min(SOON.saturating_mul(1 << failures.min(16))),
            };
            pause_or_change(pause.mul_f64(0.8 + 0.4 * chance()), changes).await;
        }
    }

    /// One discovery, on the discoveries' own thread.
    async fn ask(&self) -> Result<Answer, Failed> {
        let target = &self.target;
        let failed = |reason, message: String| Failed { reason, message };
        let url =
            Url::parse(&target.url).map_err(|error| failed("ServerRefused", format!("spec.url is no URL: {error}")))?;
        self.shared.reach.admit(&url).map_err(|denied| failed("AddressDenied", denied.to_string()))?;
        let mut headers = HashMap::new();
        for header in &target.headers {
            let value = match &header.value_from {
                None => header.value.clone().unwrap_or_default().into_bytes(),
                Some(source) => self.value(source).await?,
            };
            let bad = |what: &str| failed("InvalidHeader", format!("spec.headersFrom {:?} has {what}", header.name));
            let name = HeaderName::try_from(&header.name).map_err(|_| bad("a name that is no header's"))?;
            let mut value = HeaderValue::from_bytes(value.trim_ascii())
                .map_err(|_| bad("a value that no header may have: it must be printable text in one line"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let ca = match &target.tls.ca_secret_ref {
            Some(CaSecret { name, key }) => {
                let source = ValueSource { type_: "Secret".to_owned(), name: name.clone(), key: key.clone() };
                Some(self.value(&source).await?)
            }
            None => None,
        };
        let trust = match &ca {
            _ if target.tls.insecure_skip_verify => Trust::Anyone,
            Some(pem) => Trust::Also(pem),
            None => Trust::System,
        };
        let client =
            self.shared.reach.client(trust).map_err(|error| failed("InvalidCertificate", error.to_string()))?;
        let question = Question {
            url,
            headers,
            timeout: target.timeout,
            era: self.era,
            most: MOST_TOOLS,
            terminates: target.terminates,
            sse: target.sse,
            silence: target.silence,
        };
        let asking = async move { discover(client, &question).await };
        let running = match self.shared.thread() {
            Some(thread) => thread.spawn(asking),
            None => tokio::spawn(asking),
        };
        Joined(running).end().await.unwrap_or_else(|| {
            Err(failed("InvalidServerAnswer", "its answer made the operator stumble; please report it".to_owned()))
        })
    }

    /// A value, read past the cache, which holds none.
    async fn value(&self, source: &ValueSource) -> Result<Vec<u8>, Failed> {
        let kind = if source.is_secret() { ChildKind::Secret } else { ChildKind::ConfigMap };
        let (namespace, name) = (self.target.key.namespace.clone(), source.name.clone());
        let child = ChildRef { kind, namespace, name };
        let failed = |message| Failed { reason: "InvalidHeader", message };
        let mut data: BTreeMap<String, String> = self
            .shared
            .cluster
            .data(&child)
            .await
            .map_err(|error| failed(format!("{child} cannot be read: {error}")))?;
        let text = data.remove(&source.key).ok_or_else(|| failed(format!("{child} has no key {:?}", source.key)))?;
        if !source.is_secret() {
            return Ok(text.into_bytes());
        }
        let bytes: Result<ByteString, _> = serde_json::from_value(text.into());
        bytes.map(|bytes| bytes.0).map_err(|_| failed(format!("{child} cannot be read: its values are no base64")))
    }
}

impl Shared {
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

/// Until the next turn, or until the server says that something changed.
async fn pause_or_change(pause: Duration, changes: Option<Changes>) {
    let Some(mut changes) = changes else { return sleep(pause).await };
    tokio::select! {
        () = sleep(pause) => {}
        () = changes.next() => sleep(PAUSE.min(pause)).await,
    }
    changes.close().await;
}

fn discovered(
    tools: Vec<crate::mcp::McpTool>,
    more: bool,
    (name, version): (String, String),
    protocol_version: String,
    era: Era,
) -> Discovered {
    let short = |text: String| text.chars().take(256).collect();
    let tools = tools.into_iter().map(|tool| Definition {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
        output_schema: tool.output_schema,
    });
    Discovered {
        tools: tools.collect(),
        more,
        server: ServerInfo { name: short(name), version: short(version), protocol_version: short(protocol_version) },
        era: era.as_str().to_owned(),
    }
}

/// A failure as the object's condition tells it.
fn undiscovered(failed: Failed, url: &str) -> Undiscovered {
    let host = Url::parse(url).map(|url| url.authority().rsplit('@').next().unwrap_or_default().to_owned());
    let subject = host.map(|host| format!("the MCP server at {host}")).unwrap_or_else(|_| "the MCP server".to_owned());
    let message = match failed.message.strip_prefix("it ") {
        Some(rest) => format!("{subject} {rest}"),
        None => format!("{subject}: {}", failed.message),
    };
    Undiscovered { reason: failed.reason, message }
}

/// A number from 0 to 1, another one each time.
fn chance() -> f64 {
    let number = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(number >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
