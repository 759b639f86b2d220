//! The API server's audit log: who asked for what, and when it was answered.
//!
//! The log has one JSON line per request, written once the answer is given. A mark is a place in the file; what was asked
//! since then is read up to a request of our own, so that nothing is still on its way into the file.

use std::{
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

/// The audit log.
pub(crate) struct Audit {
    client: Client,
    path: PathBuf,
    fences: AtomicU64,
}

/// A place in the log: everything asked before is before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(u64);

/// One answered request.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub(crate) verb: String,
    user: User,
    #[serde(default)]
    object_ref: Target,
    #[serde(default)]
    response_status: Answer,
    #[serde(rename = "requestURI")]
    uri: String,
    /// When the request came in.
    #[serde(rename = "requestReceivedTimestamp")]
    pub(crate) received: Timestamp,
    /// When the answer was given.
    #[serde(rename = "stageTimestamp")]
    pub(crate) answered: Timestamp,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Target {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Answer {
    code: u16,
}

impl Entry {
    /// Plural and subresource, such as `agents/status`.
    pub(crate) fn resource(&self) -> String {
        let Target { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }

    pub(crate) fn name(&self) -> &str {
        &self.object_ref.name
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.object_ref.namespace
    }

    /// The status code of the answer.
    pub(crate) fn code(&self) -> u16 {
        self.response_status.code
    }

    /// Whether the user made it.
    pub(crate) fn is_by(&self, user: &str) -> bool {
        self.user.username == user
    }

    /// Whether it is only tried, not stored.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.uri.contains("dryRun=")
    }

    /// Whether it asks the API server to store something.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && !self.is_dry_run()
    }

    /// Whether it is part of what runs all the time: watches, the lease, reviews of its own rights, paths without object.
    pub(crate) fn is_upkeep(&self) -> bool {
        let Target { resource, api_group, .. } = &self.object_ref;
        self.verb == "watch" || resource == "leases" || resource.is_empty() || api_group == "authorization.k8s.io"
    }
}

impl Audit {
    pub(crate) fn new(client: Client, path: PathBuf) -> Self {
        Self { client, path, fences: AtomicU64::new(0) }
    }

    /// A mark between what was asked so far and what comes.
    pub(crate) async fn mark(&self) -> Result<Mark> {
        let length = std::fs::metadata(&self.path).with_context(|| format!("find {}", self.path.display()))?.len();
        Ok(Mark(self.read_to_fence(Mark(length)).await?.1))
    }

    /// Everything that was answered since the mark, by whomever.
    pub(crate) async fn since(&self, mark: Mark) -> Result<Vec<Entry>> {
        let (text, _) = self.read_to_fence(mark).await?;
        let entries = text.lines().map(serde_json::from_str::<Entry>).collect::<Result<Vec<_>, _>>();
        let mut entries = entries.context("read a line of the audit log")?;
        entries.retain(|entry| entry.stage == "ResponseComplete");
        Ok(entries)
    }

    /// Reads from the mark up to the line of a request that is made now; also gives the place after that line.
    async fn read_to_fence(&self, since: Mark) -> Result<(String, u64)> {
        let fence = format!("bench-fence-{}", self.fences.fetch_add(1, Ordering::Relaxed));
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        api.get_opt(&fence).await.context("send the request that ends the count")?;
        let fence = format!("/{fence}\"");
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            let mut text = self.read(since)?;
            if let Some(at) = text.find(&fence)
                && let Some(line) = text[at..].find('\n')
            {
                text.truncate(at + line + 1);
                let end = since.0 + text.len() as u64;
                return Ok((text, end));
            }
            sleep(Duration::from_millis(100)).await;
        }
        bail!("our own request does not appear in {}", self.path.display())
    }

    fn read(&self, since: Mark) -> Result<String> {
        let mut file = std::fs::File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(since.0))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The last line may be half written yet; whole lines are what is wanted.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        String::from_utf8(bytes).context("the audit log is not text")
    }
}
