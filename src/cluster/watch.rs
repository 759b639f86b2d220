//! One watch per kind for the whole process: list, follow, and start over where that is needed.
//!
//! A watch asks for 25 s and is reopened from the last resource version it saw, because bookmarks come only once a
//! minute and a connection on which nothing comes any more is noticed only by a watch that does not end. kube's own
//! `watcher` has no deadline for its list and its opening request, decodes versions that are known already, and fails
//! the whole list for one object that it cannot decode; so the loop is our own.

use std::{borrow::Cow, fmt, pin::pin, sync::Arc, time::Duration};

use backoff::{BackoffBuilder, ExponentialBuilder};
use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    board::Board,
    decode::head,
    error::RequestError,
    resource::{Resource, Target},
    store::{Cause, Head, Listed, ObjectMap, Seen},
    transport::{Call, Outgoing, Transport, outgoing, read_json},
};

/// How long the API server is asked to keep a watch open.
const WATCH: Duration = Duration::from_secs(25);
/// A watch still open after this time is dead: its server should have ended it.
const SILENCE: Duration = Duration::from_secs(28);
/// Objects in one page of a list, so that a list is never held whole.
const PAGE: &str = "100";

/// What to watch and how to read it.
pub struct Source<T> {
    /// The kind.
    pub resource: Resource,
    /// Restricts the watch to what carries these labels.
    pub labels: Option<&'static str>,
    /// Restricts the watch to objects with these fields.
    pub fields: Option<&'static str>,
    /// Reads one object.
    pub decode: Decode<T>,
}

/// Reads one object from JSON.
pub type Decode<T> = Arc<dyn Fn(&Head, &str) -> Result<T, serde_json::Error> + Send + Sync>;

impl<T> Clone for Source<T> {
    fn clone(&self) -> Self {
        Self { resource: self.resource, labels: self.labels, fields: self.fields, decode: self.decode.clone() }
    }
}

impl<T> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// One watch.
pub struct Watch<T> {
    source: Source<T>,
    namespace: Option<String>,
    transport: Arc<Transport>,
    map: Arc<ObjectMap<T>>,
    board: Arc<Board>,
    row: usize,
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("kind", &self.source.resource.kind).finish_non_exhaustive()
    }
}

/// Why a round ended that should have gone on.
enum Broken {
    /// The resource version is too old, or the watch cannot go on from it: list again.
    Gone,
    /// Try again.
    Failed(RequestError),
}

impl From<RequestError> for Broken {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused { code: 410, .. } => Self::Gone,
            error => Self::Failed(error),
        }
    }
}

impl<T: Send + Sync + 'static> Watch<T> {
    /// The request, which asks for the metadata alone where nothing else is read.
    fn reduced(&self, mut request: Outgoing, what: &str) -> Outgoing {
        let accept = format!("application/json;as={what};g=meta.k8s.io;v=v1");
        if let Some(accept) =
            http::HeaderValue::from_str(&accept).ok().filter(|_| self.source.resource.is_metadata_only())
        {
            request.headers_mut().insert(http::header::ACCEPT, accept);
        }
        request
    }

    /// A watch of one namespace, or (`None`) of all, that fills `map`.
    pub fn new(
        source: Source<T>,
        namespace: Option<String>,
        transport: Arc<Transport>,
        map: Arc<ObjectMap<T>>,
        board: Arc<Board>,
    ) -> Self {
        let row = board.add(format!("watch {}", source.resource.collection(namespace.as_deref())));
        Self { source, namespace, transport, map, board, row }
    }

    /// Keeps the map up to date for ever.
    pub async fn run(self) {
        // An API server that comes back is noticed within 2 s.
        let builder = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(1))
            .with_jitter()
            .without_max_times();
        let mut delays = builder.build();
        let mut from: Option<u64> = None;
        let mut failures = 0_u32;
        loop {
            let round = match from {
                None => self.list().await.map(Some),
                Some(version) => self.follow(version, &mut from).await,
            };
            match round {
                Ok(listed) => {
                    from = listed.or(from);
                    failures = 0;
                    delays = builder.build();
                    self.board.set(self.row, |row| (row.started, row.problem) = (true, None));
                    self.board.hear(self.row);
                    continue;
                }
                Err(Broken::Gone) => {
                    tracing::info!(kind = self.source.resource.kind, "watch cannot be resumed: listing again");
                    from = None;
                }
                Err(Broken::Failed(error)) => {
                    failures += 1;
                    // A version that the server keeps refusing is not worth insisting on.
                    if failures >= 3 && error.code().is_some() {
                        from = None;
                    }
                    tracing::warn!(kind = self.source.resource.kind, %error, "watch failed");
                    self.board.report(self.row, Some(&error));
                }
            }
            self.transport.metrics.watch_restart(self.source.resource.kind);
            tokio::time::sleep(delays.next().unwrap_or(Duration::from_secs(1))).await;
        }
    }

    fn target(&self) -> Target {
        let mut target = Target::new(self.source.resource.collection(self.namespace.as_deref()));
        if let Some(labels) = self.source.labels {
            target = target.with("labelSelector", labels);
        }
        if let Some(fields) = self.source.fields {
            target = target.with("fieldSelector", fields);
        }
        target
    }

    fn call(&self, verb: &'static str) -> Call {
        let object = self.namespace.clone().unwrap_or_default();
        Call { verb, kind: self.source.resource.kind, object }
    }

    async fn list(&self) -> Result<u64, Broken> {
        let call = self.call("list");
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let mut target = self.target().with("limit", PAGE);
            if !next.is_empty() {
                target = target.with("continue", &next);
            }
            let request = outgoing(http::Method::GET, target.into_string(), None, Vec::new());
            let request = self.reduced(request, "PartialObjectMetadataList");
            let body = self.transport.call(&call, request).await?;
            let page: Page<'_> = read_json(&call, &body)?;
            items.extend(page.items.iter().filter_map(|item| self.listed(item.get())));
            if page.metadata.continue_.is_empty() {
                let version = page.metadata.resource_version.parse().unwrap_or_default();
                self.map.replace(self.namespace.as_deref(), items, version);
                return Ok(version);
            }
            next = page.metadata.continue_.into_owned();
        }
    }

    fn listed(&self, json: &str) -> Option<Listed<T>> {
        let head = self.head(json)?;
        if self.map.knows(&head) {
            return Some(Listed::Known(head.key));
        }
        self.object(head, json).map(Listed::New)
    }

    /// Follows the changes after `version` until the server ends the watch; `from` follows along.
    async fn follow(&self, version: u64, from: &mut Option<u64>) -> Result<Option<u64>, Broken> {
        let call = self.call("watch");
        let target = self
            .target()
            .with("watch", "true")
            .with("allowWatchBookmarks", "true")
            .with("timeoutSeconds", &WATCH.as_secs().to_string())
            .with("resourceVersion", &version.to_string());
        let request = outgoing(http::Method::GET, target.into_string(), None, Vec::new());
        let request = self.reduced(request, "PartialObjectMetadata");
        let (generation, stream) = self.transport.stream(&call, request).await?;
        self.board.report(self.row, None);
        self.board.hear(self.row);
        match tokio::time::timeout(SILENCE, self.read(&call, stream, from)).await {
            Ok(end) => end.map(|()| None),
            Err(_) => {
                self.transport.gone_silent(generation);
                let what = format!("watch {}", self.source.resource.kind);
                Err(Broken::Failed(RequestError::Timeout { what, after: SILENCE }))
            }
        }
    }

    async fn read(&self, call: &Call, stream: impl AsyncBufRead, from: &mut Option<u64>) -> Result<(), Broken> {
        let mut stream = pin!(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            stream.read_until(b'\n', &mut line).await.map_err(|error| {
                let what = format!("watch {}", self.source.resource.kind);
                Broken::Failed(RequestError::Transport { what, cause: error.to_string() })
            })?;
            // A line that does not end was cut off; what it said comes again after reopening.
            if !line.ends_with(b"\n") {
                return Ok(());
            }
            let event: Event<'_> = read_json(call, &line)?;
            if let Some(version) = self.take(call, &event)? {
                *from = Some(version);
                self.board.hear(self.row);
            }
        }
    }

    /// The resource version after this event.
    fn take(&self, call: &Call, event: &Event<'_>) -> Result<Option<u64>, Broken> {
        let json = event.object.get();
        if event.type_ == "ERROR" {
            let status: Box<Status> = read_json(call, json.as_bytes())?;
            let (what, code) = (format!("watch {}", self.source.resource.kind), status.code);
            return Err(RequestError::Refused { what, code, status, after: None }.into());
        }
        let Some(head) = self.head(json) else { return Ok(None) };
        let version = head.version;
        match event.type_.as_ref() {
            "BOOKMARK" => {}
            "DELETED" => self.map.remove(&head.key, version, Cause::Watch),
            _ if self.map.knows(&head) => {}
            _ => {
                let key = head.key.clone();
                match self.object(head, json) {
                    Some(seen) => self.map.observe(seen, Cause::Watch),
                    // What this build cannot read, it must not act on as it was before.
                    None => self.map.remove(&key, version, Cause::Watch),
                }
            }
        }
        Ok(Some(version))
    }

    fn head(&self, json: &str) -> Option<Head> {
        head(json).map_err(|error| self.malformed("", &error)).ok()
    }

    fn object(&self, head: Head, json: &str) -> Option<Seen<T>> {
        match (self.source.decode)(&head, json) {
            Ok(object) => Some(Seen::new(head, object)),
            Err(error) => {
                self.malformed(&head.key.to_string(), &error);
                None
            }
        }
    }

    fn malformed(&self, object: &str, error: &serde_json::Error) {
        let kind = self.source.resource.kind;
        tracing::error!(kind, object, %error, "an object cannot be read and is left out: correct or delete it");
        self.transport.metrics.malformed(kind);
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    metadata: PageMeta<'a>,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default, rename = "continue")]
    continue_: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
