//! One watch per kind for the whole process: list, follow, and start over where that is needed.
//!
//! A store that was put back to an earlier state (a restored etcd) is noticed by its version: a watch of a version that is yet to
//! come brings nothing, and would make the process deaf without a word.
//!
//! A watch asks for 25 s and is reopened from the last resource version it saw, because bookmarks come only once a
//! minute and a connection on which nothing comes any more is noticed only by a watch that does not end. kube's own
//! `watcher` has no deadline for its list and its opening request, decodes versions that are known already, and fails
//! the whole list for one object that it cannot decode; so the loop is our own.

use std::{borrow::Cow, fmt, pin::pin, sync::Arc, time::Duration};

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    board::Board,
    decode::head,
    error::RequestError,
    page::{List, PAGE},
    pause::Pauses,
    resource::{Resource, Target},
    store::{Cause, Head, Listed, ObjectMap, Seen},
    transport::{Call, Outgoing, Transport, outgoing, read_json},
};

/// How long the API server is asked to keep a watch open.
const WATCH: Duration = Duration::from_secs(25);
/// A watch still open after this time is dead: its server should have ended it.
const SILENCE: Duration = Duration::from_secs(28);
/// After this long without the right the objects leave the cache: what is known of them is worth nothing any more.
const FORGET: Duration = Duration::from_secs(600);
/// Between the first sign that the store was put back to an earlier state, and the second.
const DOUBT: Duration = Duration::from_secs(2);
/// Of so many watches in a row that brought nothing, not even a bookmark, one is followed by a look at the store's version, where no
/// lease shows it.
const STALLED: u32 = 10;

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
    pub(super) transport: Arc<Transport>,
    pub(super) map: Arc<ObjectMap<T>>,
    board: Arc<Board>,
    row: usize,
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("kind", &self.source.resource.kind).finish_non_exhaustive()
    }
}

/// How far a watch has come.
struct Progress {
    /// The version it goes on from; `None`: with a list.
    from: Option<u64>,
    /// The newest version that it has seen.
    newest: u64,
    /// Whether the store once showed an older version than that.
    doubted: bool,
    /// Watches in a row that brought nothing.
    stalled: u32,
    /// Whether the version that the lease shows is of another store.
    alone: bool,
    /// Objects asked for in one page.
    page: u32,
    pauses: Pauses,
    /// The code it is refused with, for the gauge.
    refused: Option<u16>,
}

/// Why a round ended that should have gone on.
enum Broken {
    /// The resource version is too old, or the watch cannot go on from it: list again.
    Gone(RequestError),
    /// Try again.
    Failed(RequestError),
}

impl From<RequestError> for Broken {
    fn from(error: RequestError) -> Self {
        match error.code() {
            Some(400 | 410) => Self::Gone(error),
            _ => Self::Failed(error),
        }
    }
}

impl<T: Send + Sync + 'static> Watch<T> {
    /// The request, which asks for the metadata alone where nothing else is read.
    pub(super) fn reduced(&self, mut request: Outgoing, what: &str) -> Outgoing {
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
        let row = board.add(&source.resource, namespace.as_deref());
        Self { source, namespace, transport, map, board, row }
    }

    /// Keeps the map up to date for ever.
    pub async fn run(self) {
        let mut at = Progress {
            from: None,
            newest: 0,
            doubted: false,
            stalled: 0,
            alone: false,
            page: PAGE,
            pauses: Pauses::default(),
            refused: None,
        };
        loop {
            let round = match at.from {
                None => self.renew(&mut at).await,
                Some(version) => self.follow(version, &mut at).await,
            };
            let pause = match round {
                Ok(()) => continue,
                Err(Broken::Gone(error)) => {
                    tracing::info!(kind = self.source.resource.kind, "watch cannot be resumed: listing again");
                    at.from = None;
                    at.pauses.after(&error)
                }
                Err(Broken::Failed(error)) => self.failed(&error, &mut at),
            };
            self.transport.metrics.watch_restart(self.source.resource.kind);
            tokio::time::sleep(pause).await;
        }
    }

    /// Takes note of a failure; how long to wait after it.
    fn failed(&self, error: &RequestError, at: &mut Progress) -> Duration {
        self.transport.complain(self.source.resource.kind, error);
        self.refused(error.code().filter(|code| matches!(code, 403 | 404)), at);
        let pause = at.pauses.after(error);
        if at.pauses.is_undefined() {
            // All objects of a kind go with its definition.
            self.board.undefined(self.row, error);
            self.forget(at);
            return pause;
        }
        self.board.report(self.row, Some(error));
        if at.newest > 0 && at.pauses.forbidden_for() >= FORGET {
            self.board.forget(self.row);
            self.forget(at);
        }
        pause
    }

    fn forget(&self, at: &mut Progress) {
        (at.from, at.newest) = (None, 0);
        self.map.rebuild(self.namespace.as_deref(), Vec::new());
    }

    /// Counts the watch as refused with this code, or as not refused.
    fn refused(&self, code: Option<u16>, at: &mut Progress) {
        let (kind, metrics) = (self.source.resource.kind, &self.transport.metrics);
        let before = std::mem::replace(&mut at.refused, code);
        if before != code {
            before.into_iter().for_each(|code| metrics.watch_refused(kind, code, -1));
            code.into_iter().for_each(|code| metrics.watch_refused(kind, code, 1));
        }
    }

    /// Takes a complete list.
    async fn renew(&self, at: &mut Progress) -> Result<(), Broken> {
        let List { items, version } = self.list(&mut at.page, at.doubted).await?;
        let namespace = self.namespace.as_deref();
        if version >= at.newest {
            self.map.replace(namespace, items, version);
            // Leases may have a store of their own, whose versions say nothing here.
            at.alone |= at.doubted;
        } else if !at.doubted {
            // One server behind the others may say this; the next one says it no more.
            at.doubted = true;
            tokio::time::sleep(DOUBT).await;
            return Ok(());
        } else {
            let kind = self.source.resource.kind;
            tracing::warn!(kind, version, before = at.newest, "the cluster was put back to an earlier state");
            let seen = |item| match item {
                Listed::New(seen) => Some(seen),
                Listed::Known(_) | Listed::Unreadable(_) => None,
            };
            self.map.rebuild(namespace, items.into_iter().filter_map(seen).collect());
        }
        (at.from, at.newest, at.doubted) = (Some(version), version, false);
        self.refused(None, at);
        self.board.list(self.row);
        Ok(())
    }

    /// Looks whether a watch that brought nothing goes on from a version that is yet to come.
    async fn look_back(&self, version: u64, at: &mut Progress) -> Result<(), Broken> {
        if at.from != Some(version) {
            at.stalled = 0;
            return Ok(());
        }
        at.stalled += 1;
        let now = match self.board.store_version().filter(|_| !at.alone) {
            Some(now) => now,
            None if at.stalled % STALLED == 1 => self.version().await?,
            None => return Ok(()),
        };
        if now < version {
            (at.from, at.doubted) = (None, true);
            tokio::time::sleep(DOUBT).await;
        }
        Ok(())
    }

    pub(super) fn target(&self) -> Target {
        let mut target = Target::new(self.source.resource.collection(self.namespace.as_deref()));
        if let Some(labels) = self.source.labels {
            target = target.with("labelSelector", labels);
        }
        if let Some(fields) = self.source.fields {
            target = target.with("fieldSelector", fields);
        }
        target
    }

    pub(super) fn call(&self, verb: &'static str) -> Call {
        let object = self.namespace.clone().unwrap_or_default();
        Call { verb, kind: self.source.resource.kind, object }
    }

    /// Follows the changes after `version` until the server ends the watch.
    async fn follow(&self, version: u64, at: &mut Progress) -> Result<(), Broken> {
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
        at.pauses = Pauses::default();
        self.refused(None, at);
        self.board.report(self.row, None);
        self.board.hear(self.row);
        match tokio::time::timeout(SILENCE, self.read(&call, stream, at)).await {
            Ok(end) => {
                end?;
                self.look_back(version, at).await
            }
            Err(_) => {
                self.transport.gone_silent(generation);
                let what = format!("watch {}", self.source.resource.kind);
                Err(Broken::Failed(RequestError::Timeout { what, after: SILENCE }))
            }
        }
    }

    async fn read(&self, call: &Call, stream: impl AsyncBufRead, at: &mut Progress) -> Result<(), Broken> {
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
                if event.type_ == "BOOKMARK" && version < at.newest {
                    (at.from, at.doubted) = (None, true);
                    return Ok(());
                }
                (at.from, at.newest) = (Some(version), at.newest.max(version));
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
            _ => match self.object(head, json) {
                Ok(seen) => self.map.observe(seen, Cause::Watch),
                Err(head) => self.map.drop_unreadable(&head, Cause::Watch),
            },
        }
        Ok(Some(version))
    }

    pub(super) fn head(&self, json: &str) -> Option<Head> {
        head(json).map_err(|error| self.malformed("", &error)).ok()
    }

    /// Decodes an object; `Err`: it cannot be read.
    pub(super) fn object(&self, head: Head, json: &str) -> Result<Seen<T>, Head> {
        match (self.source.decode)(&head, json) {
            Ok(object) => Ok(Seen::new(head, object)),
            Err(error) => {
                self.malformed(&head.key.to_string(), &error);
                Err(head)
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
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
