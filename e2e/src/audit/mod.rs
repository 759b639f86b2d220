//! Reads the API server's audit log: the user, the request and the time of the response.
//!
//! The log has one JSON line per request, written when the response is complete, and for a write by a ServiceAccount one more,
//! written when the request is received. A mark is the time of a request that this process sends (a fence), with an offset
//! before the lines of all later ones. A read from a mark ends at the line of a further fence and at the answers of all these
//! writes that were received before it: a watch delivers the effect of a write before the line of its response is written.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    io::{Read as _, Seek as _, SeekFrom},
    ops::Range,
    path::PathBuf,
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

/// Username of the operator's ServiceAccount.
pub const OPERATOR: &str = "system:serviceaccount:recif-system:recif-operator";

/// Interval between two reads of the file.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Longest wait for the answers: longer than the API server's own limit of a request (`--request-timeout`, 60 s), which ends
/// also a write whose client was stopped while it sent the body.
const ANSWERED_WITHIN: Duration = Duration::from_secs(75);

/// Audit log of the API server.
///
/// Invariant: every fence request has a number of its own, `fences` is the next one.
pub struct Audit {
    client: Client,
    path: PathBuf,
    fences: AtomicU64,
}

/// Moment in the log: the API server received all earlier requests before it, though it may have answered some of them later.
#[derive(Debug, Clone, Copy)]
pub struct AuditMark {
    offset: u64,
    received: Timestamp,
}

/// One request of the audit log.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    user: AuditUser,
    #[serde(default)]
    object_ref: AuditObjectRef,
    #[serde(default)]
    response_status: AuditResponseStatus,
    #[serde(rename = "requestURI")]
    uri: String,
    /// Time at which the API server received the request.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    /// Time of the audit event, which is that of the completed response.
    #[serde(rename = "stageTimestamp")]
    pub answered: Timestamp,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AuditUser {
    username: String,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AuditObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AuditResponseStatus {
    code: u16,
}

impl fmt::Display for AuditEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}/{} {}", self.verb, self.resource(), self.namespace(), self.name(), self.code())
    }
}

impl AuditEvent {
    /// Returns the plural and the subresource, such as `agents/status`.
    pub fn resource(&self) -> String {
        let AuditObjectRef { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }

    /// Returns the name of the object; empty for a create.
    pub fn name(&self) -> &str {
        &self.object_ref.name
    }

    /// Returns the namespace of the object; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        &self.object_ref.namespace
    }

    /// Returns the status code of the response.
    pub fn code(&self) -> u16 {
        self.response_status.code
    }

    /// Reports whether the status code is 2xx.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code())
    }

    /// Reports whether this user sent the request.
    pub fn is_by(&self, user: &str) -> bool {
        self.user.username == user
    }

    /// Returns the uid of the Pod whose token came with the request; empty for other credentials.
    pub fn pod_uid(&self) -> &str {
        let uids = self.user.extra.get("authentication.kubernetes.io/pod-uid");
        uids.and_then(|uids| uids.first()).map_or("", String::as_str)
    }

    /// Reports whether the request is a dry run, of which the API server stores nothing.
    pub fn is_dry_run(&self) -> bool {
        self.uri.contains("dryRun=")
    }

    /// Reports whether the request is a write that is not a dry run.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && !self.is_dry_run()
    }

    /// Reports whether the request is part of the constant background: watches, the lease, reviews of the operator's own
    /// permissions, paths without an object.
    pub fn is_upkeep(&self) -> bool {
        let AuditObjectRef { resource, api_group, .. } = &self.object_ref;
        self.verb == "watch" || resource == "leases" || resource.is_empty() || api_group == "authorization.k8s.io"
    }
}

impl Audit {
    /// Opens the log at `path`. `client` is for the API server that writes this log.
    pub fn new(client: Client, path: PathBuf) -> Self {
        Self { client, path, fences: AtomicU64::new(0) }
    }

    /// Returns a mark between the requests so far and those to come.
    ///
    /// # Errors
    /// The file cannot be read, or the fence request or the answer of a write before it does not appear in it within
    /// [`ANSWERED_WITHIN`].
    pub async fn mark(&self) -> Result<AuditMark> {
        let length = std::fs::metadata(&self.path).with_context(|| format!("find {}", self.path.display()))?.len();
        Ok(AuditMark { offset: length, received: self.read_to_fence(length).await?.1 })
    }

    /// Returns all requests since the mark, of every user.
    ///
    /// # Errors
    /// Those of [`Audit::mark`]; a line is not an entry of an audit log.
    pub async fn since(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        let (text, _) = self.read_to_fence(mark.offset).await?;
        completed_requests(text.lines(), mark)
    }

    /// Returns the requests of one user since the mark, in one namespace or in all of them.
    ///
    /// # Errors
    /// Those of [`Audit::since`].
    pub async fn requests_by(&self, user: &str, since: AuditMark, namespace: Option<&str>) -> Result<Vec<AuditEvent>> {
        let (text, _) = self.read_to_fence(since.offset).await?;
        let mut requests = completed_requests(text.lines().filter(|line| line.contains(user)), since)?;
        requests.retain(|request| request.is_by(user) && namespace.is_none_or(|wanted| request.namespace() == wanted));
        Ok(requests)
    }

    /// Returns the operator's requests since the mark, in one namespace or in all of them.
    ///
    /// # Errors
    /// Those of [`Audit::since`].
    pub async fn requests_by_operator(&self, since: AuditMark, namespace: Option<&str>) -> Result<Vec<AuditEvent>> {
        self.requests_by(OPERATOR, since, namespace).await
    }

    /// Checks that the operator sends no request except upkeep for a namespace, from the mark until `window` from this call
    /// is over. The absence of requests can only be observed for a limited time.
    ///
    /// # Errors
    /// The operator sends such a request; those of [`Audit::since`].
    pub async fn ensure_quiet(&self, since: AuditMark, namespace: &str, window: Duration) -> Result<()> {
        let end = Instant::now() + window;
        loop {
            let over = Instant::now() >= end;
            let mut requests = self.requests_by_operator(since, Some(namespace)).await?;
            requests.retain(|request| !request.is_upkeep());
            if !requests.is_empty() {
                bail!("the operator asked for {}", describe_requests(&requests));
            }
            if over {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends a fence request and reads from the offset up to its line, and on until every write received before it is
    /// answered; also returns when the API server received the fence.
    async fn read_to_fence(&self, since: u64) -> Result<(String, Timestamp)> {
        let fence = format!("fence-{}-{}", process::id(), self.fences.fetch_add(1, Ordering::Relaxed));
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        api.get_opt(&fence).await.context("send the request that ends the count")?;
        let fence = format!("/{fence}\"");
        let deadline = Instant::now() + ANSWERED_WITHIN;
        loop {
            let mut text = self.read(since)?;
            match end_of_answers(&text, &fence) {
                Ok((line, end)) => {
                    let fence: AuditEvent =
                        serde_json::from_str(&text[line]).context("read a line of the audit log")?;
                    text.truncate(end);
                    return Ok((text, fence.received));
                }
                Err(missing) if Instant::now() > deadline => {
                    bail!("{}: after {ANSWERED_WITHIN:?} {missing}", self.path.display())
                }
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn read(&self, since: u64) -> Result<String> {
        let mut file = std::fs::File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(since))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The last line may be incomplete: only whole lines are returned.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        String::from_utf8(bytes).context("the audit log is not text")
    }
}

/// Returns the line with the fence, and the offset after it and after the answers of all writes that were received before it.
///
/// # Errors
/// One of these lines is missing; the text says which.
fn end_of_answers(text: &str, fence: &str) -> Result<(Range<usize>, usize), String> {
    let mut waits_for_answer = HashMap::new();
    let (mut end, mut fenced) = (0, None);
    for line in text.split_inclusive('\n') {
        end += line.len();
        let request = audit_id(line);
        if !line.contains(r#""stage":"RequestReceived""#) {
            waits_for_answer.remove(request);
        } else if fenced.is_none() {
            waits_for_answer.insert(request, line);
        }
        if line.contains(fence) {
            fenced = Some(end - line.len()..end);
        }
        if waits_for_answer.is_empty()
            && let Some(line) = fenced.take()
        {
            return Ok((line, end));
        }
    }
    let unanswered: String = waits_for_answer.into_values().collect();
    Err(match fenced {
        Some(_) => format!("no answer of these requests is in it: {unanswered}"),
        None => "our own request is not in it".to_owned(),
    })
}

/// Returns the identifier that all lines of a request share; empty without one.
fn audit_id(line: &str) -> &str {
    const KEY: &str = r#""auditID":""#;
    let value = line.find(KEY).map_or("", |at| &line[at + KEY.len()..]);
    value.split('"').next().unwrap_or_default()
}

/// Returns the answered requests among the lines that were received after the mark: a line after it may be the answer of an
/// earlier request.
fn completed_requests<'a>(lines: impl Iterator<Item = &'a str>, since: AuditMark) -> Result<Vec<AuditEvent>> {
    let requests = lines.map(serde_json::from_str::<AuditEvent>).collect::<Result<Vec<_>, _>>();
    let mut requests = requests.context("read a line of the audit log")?;
    requests.retain(|request| request.stage == "ResponseComplete" && request.received > since.received);
    Ok(requests)
}

/// Joins the requests to one text, for the message of a failed check.
pub fn describe_requests<'a>(requests: impl IntoIterator<Item = &'a AuditEvent>) -> String {
    let lines: Vec<String> = requests.into_iter().map(ToString::to_string).collect();
    if lines.is_empty() { "no request".into() } else { lines.join(", ") }
}

#[cfg(test)]
mod tests;
