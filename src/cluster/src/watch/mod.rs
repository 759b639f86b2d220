//! List and watch: keeps an informer cache up to date, one loop per kind and scope for the whole process.
//!
//! A loop lists the kind, watches the changes after the list's resource version, and relists where the watch cannot be resumed ([efficient
//! detection of changes](https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes)).
//!
//! A store that was restored to an earlier state (an etcd backup) is detected by its resource version: a watch from a version in the future
//! delivers nothing and reports no error, so the cache would become stale unnoticed.
//!
//! A watch is requested for 25 s and is reopened from the last resource version it saw, because a bookmark arrives only once a minute, and
//! a dead connection is noticed only by a watch that does not end in time. kube's own `watcher` has no deadline for its list and its
//! opening request, decodes versions that are known already, and fails the whole list for one object that it cannot decode; hence this loop
//! of our own.

use std::{borrow::Cow, fmt, pin::pin, sync::Arc, time::Duration};

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    backoff::WatchBackoff,
    decode::object_version,
    error::RequestError,
    page::{List, PAGE},
    resource::{RequestTarget, Resource},
    store::{ChangeSource, ListItem, ObjectMap, ObjectVersion, Versioned},
    transport::{ApiRequest, RequestInfo, Transport, api_request, read_json},
    watch_health::WatchHealth,
};

/// Time after which the API server is asked to end a watch (`timeoutSeconds`).
const WATCH_TIMEOUT: Duration = Duration::from_secs(25);
/// Longest life of a watch: one that is still open after it has a dead connection, because the API server should have ended it.
const READ_TIMEOUT: Duration = Duration::from_secs(28);
/// Time without the right to watch after which the objects leave the cache, because what is known of them is out of date.
const FORBIDDEN_TTL: Duration = Duration::from_secs(600);
/// Wait between the first sign that the store was restored to an earlier state, and the second.
const ROLLBACK_RECHECK: Duration = Duration::from_secs(2);
/// Interval of the queries for the store's version, where no Lease shows it, counted in watches in a row that brought nothing, not even a
/// bookmark.
const VERSION_CHECK_EVERY: u32 = 10;

/// Kind and selectors of a watch, and the decoder of its objects.
pub struct WatchSource<T> {
    /// The kind.
    pub resource: Resource,
    /// Label selector.
    pub labels: Option<&'static str>,
    /// Field selector.
    pub fields: Option<&'static str>,
    /// Decoder of one object.
    pub decode: Decode<T>,
}

/// Decoder of one object from JSON.
pub type Decode<T> = Arc<dyn Fn(&ObjectVersion, &str) -> Result<T, serde_json::Error> + Send + Sync>;

/// Tells by its namespace whether an object is kept.
pub type KeptNamespaces = Arc<dyn Fn(&str) -> bool + Send + Sync>;

impl<T> Clone for WatchSource<T> {
    fn clone(&self) -> Self {
        Self { resource: self.resource, labels: self.labels, fields: self.fields, decode: self.decode.clone() }
    }
}

impl<T> fmt::Debug for WatchSource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchSource").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// Watch of one kind, in one namespace or in all.
pub struct Watch<T> {
    source: WatchSource<T>,
    namespace: Option<String>,
    /// Namespaces whose objects are kept; `None`: all.
    pub(super) kept: Option<KeptNamespaces>,
    pub(super) transport: Arc<Transport>,
    pub(super) map: Arc<ObjectMap<T>>,
    watch_health: Arc<WatchHealth>,
    slot: usize,
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("kind", &self.source.resource.kind).finish_non_exhaustive()
    }
}

/// Progress of a watch.
struct WatchProgress {
    /// Resource version to resume from; `None`: relist.
    from: Option<u64>,
    /// Newest resource version seen.
    newest: u64,
    /// True after the store once showed a version older than `newest`.
    rollback_suspected: bool,
    /// Number of watches in a row that brought nothing.
    stalled: u32,
    /// True if the version that the Lease shows belongs to another store.
    lease_store_differs: bool,
    /// Number of objects requested per page.
    page: u32,
    backoff: WatchBackoff,
    /// Status code with which the watch is refused, for the gauge.
    refused: Option<u16>,
}

/// Reason why a round ended that should have continued.
enum WatchError {
    /// The resource version is too old, or the watch cannot be resumed from it: relist.
    Gone(RequestError),
    /// Any other failure: retry.
    Failed(RequestError),
}

impl From<RequestError> for WatchError {
    fn from(error: RequestError) -> Self {
        match error.code() {
            Some(400 | 410) => Self::Gone(error),
            _ => Self::Failed(error),
        }
    }
}

impl<T: Send + Sync + 'static> Watch<T> {
    /// Returns the request, restricted to metadata for a kind of which nothing else is read.
    pub(super) fn metadata_only(&self, mut request: ApiRequest, what: &str) -> ApiRequest {
        let accept = format!("application/json;as={what};g=meta.k8s.io;v=v1");
        if let Some(accept) =
            http::HeaderValue::from_str(&accept).ok().filter(|_| self.source.resource.is_metadata_only())
        {
            request.headers_mut().insert(http::header::ACCEPT, accept);
        }
        request
    }

    /// Creates a watch of one namespace, or (`None`) of all, that fills `map`.
    pub fn new(
        source: WatchSource<T>,
        namespace: Option<String>,
        transport: Arc<Transport>,
        map: Arc<ObjectMap<T>>,
        board: Arc<WatchHealth>,
    ) -> Self {
        let row = board.add(&source.resource, namespace.as_deref());
        Self { source, namespace, kept: None, transport, map, watch_health: board, slot: row }
    }

    /// Reports whether an object is kept; one that is not is never decoded.
    pub(super) fn keeps(&self, head: &ObjectVersion) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept(&head.key.namespace))
    }

    /// Keeps the map up to date for ever.
    pub async fn run(self) {
        let mut at = WatchProgress {
            from: None,
            newest: 0,
            rollback_suspected: false,
            stalled: 0,
            lease_store_differs: false,
            page: PAGE,
            backoff: WatchBackoff::default(),
            refused: None,
        };
        loop {
            let round = match at.from {
                None => self.relist(&mut at).await,
                Some(version) => self.follow(version, &mut at).await,
            };
            let pause = match round {
                Ok(()) => continue,
                Err(WatchError::Gone(error)) => {
                    tracing::info!(kind = self.source.resource.kind, "watch cannot be resumed: listing again");
                    at.from = None;
                    at.backoff.next_delay(&error)
                }
                Err(WatchError::Failed(error)) => self.handle_failure(&error, &mut at),
            };
            self.transport.metrics.watch_restart(self.source.resource.kind);
            tokio::time::sleep(pause).await;
        }
    }

    /// Records a failure and returns the back-off delay after it.
    fn handle_failure(&self, error: &RequestError, at: &mut WatchProgress) -> Duration {
        self.transport.log_watch_failure(self.source.resource.kind, error);
        self.set_refused(error.code().filter(|code| matches!(code, 403 | 404)), at);
        let pause = at.backoff.next_delay(error);
        if at.backoff.is_undefined() {
            // All objects of a kind are deleted with its definition.
            self.watch_health.record_undefined(self.slot, error);
            self.clear_cache(at);
            return pause;
        }
        self.watch_health.report(self.slot, Some(error));
        if at.newest > 0 && at.backoff.forbidden_for() >= FORBIDDEN_TTL {
            self.watch_health.forget(self.slot);
            self.clear_cache(at);
        }
        pause
    }

    fn clear_cache(&self, at: &mut WatchProgress) {
        (at.from, at.newest) = (None, 0);
        self.map.rebuild(self.namespace.as_deref(), Vec::new());
    }

    /// Counts the watch as refused with this code, or (`None`) as not refused.
    fn set_refused(&self, code: Option<u16>, at: &mut WatchProgress) {
        let (kind, metrics) = (self.source.resource.kind, &self.transport.metrics);
        let before = std::mem::replace(&mut at.refused, code);
        if before != code {
            before.into_iter().for_each(|code| metrics.watch_refused(kind, code, -1));
            code.into_iter().for_each(|code| metrics.watch_refused(kind, code, 1));
        }
    }

    /// Relists: takes a complete list into the cache.
    async fn relist(&self, at: &mut WatchProgress) -> Result<(), WatchError> {
        let List { items, version } = self.list(&mut at.page, at.rollback_suspected).await?;
        let namespace = self.namespace.as_deref();
        if version >= at.newest {
            self.map.replace(namespace, items, version);
            // Leases may be kept in a store of their own, whose versions say nothing about this one.
            at.lease_store_differs |= at.rollback_suspected;
        } else if !at.rollback_suspected {
            // One API server that lags behind the others may return an old list; the next one will not.
            at.rollback_suspected = true;
            tokio::time::sleep(ROLLBACK_RECHECK).await;
            return Ok(());
        } else {
            let kind = self.source.resource.kind;
            tracing::warn!(kind, version, before = at.newest, "the cluster was restored to an earlier state");
            let seen = |item| match item {
                ListItem::New(seen) => Some(seen),
                ListItem::Known(_) | ListItem::Unreadable(_) => None,
            };
            self.map.rebuild(namespace, items.into_iter().filter_map(seen).collect());
        }
        (at.from, at.newest, at.rollback_suspected) = (Some(version), version, false);
        self.set_refused(None, at);
        self.watch_health.record_list(self.slot);
        Ok(())
    }

    /// Checks whether a watch that brought nothing was resumed from a version in the future, because the store was rolled back.
    async fn check_rollback(&self, version: u64, at: &mut WatchProgress) -> Result<(), WatchError> {
        if at.from != Some(version) {
            at.stalled = 0;
            return Ok(());
        }
        at.stalled += 1;
        let now = match self.watch_health.store_version().filter(|_| !at.lease_store_differs) {
            Some(now) => now,
            None if at.stalled % VERSION_CHECK_EVERY == 1 => self.version().await?,
            None => return Ok(()),
        };
        if now < version {
            (at.from, at.rollback_suspected) = (None, true);
            tokio::time::sleep(ROLLBACK_RECHECK).await;
        }
        Ok(())
    }

    pub(super) fn target(&self) -> RequestTarget {
        let mut target = RequestTarget::new(self.source.resource.collection(self.namespace.as_deref()));
        if let Some(labels) = self.source.labels {
            target = target.with("labelSelector", labels);
        }
        if let Some(fields) = self.source.fields {
            target = target.with("fieldSelector", fields);
        }
        target
    }

    pub(super) fn call(&self, verb: &'static str) -> RequestInfo {
        let object = self.namespace.clone().unwrap_or_default();
        RequestInfo { verb, kind: self.source.resource.kind, object }
    }

    /// Follows the changes after `version` until the API server ends the watch.
    async fn follow(&self, version: u64, at: &mut WatchProgress) -> Result<(), WatchError> {
        let call = self.call("watch");
        let target = self
            .target()
            .with("watch", "true")
            .with("allowWatchBookmarks", "true")
            .with("timeoutSeconds", &WATCH_TIMEOUT.as_secs().to_string())
            .with("resourceVersion", &version.to_string());
        let request = api_request(http::Method::GET, target.into_string(), None, Vec::new());
        let request = self.metadata_only(request, "PartialObjectMetadata");
        let (generation, stream) = self.transport.stream(&call, request).await?;
        at.backoff = WatchBackoff::default();
        self.set_refused(None, at);
        self.watch_health.report(self.slot, None);
        self.watch_health.record_activity(self.slot);
        match tokio::time::timeout(READ_TIMEOUT, self.read(&call, stream, at)).await {
            Ok(end) => {
                end?;
                self.check_rollback(version, at).await
            }
            Err(_) => {
                self.transport.watch_timed_out(generation);
                let what = format!("watch {}", self.source.resource.kind);
                Err(WatchError::Failed(RequestError::Timeout { what, after: READ_TIMEOUT }))
            }
        }
    }

    async fn read(
        &self,
        call: &RequestInfo,
        stream: impl AsyncBufRead,
        at: &mut WatchProgress,
    ) -> Result<(), WatchError> {
        let mut stream = pin!(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            stream.read_until(b'\n', &mut line).await.map_err(|error| {
                let what = format!("watch {}", self.source.resource.kind);
                WatchError::Failed(RequestError::Transport { what, cause: error.to_string() })
            })?;
            // A line without an end was cut off; its event arrives again after the watch is reopened.
            if !line.ends_with(b"\n") {
                return Ok(());
            }
            let event: WatchEvent<'_> = read_json(call, &line)?;
            if let Some(version) = self.apply_event(call, &event)? {
                if event.type_ == "BOOKMARK" && version < at.newest {
                    (at.from, at.rollback_suspected) = (None, true);
                    return Ok(());
                }
                (at.from, at.newest) = (Some(version), at.newest.max(version));
                self.watch_health.record_activity(self.slot);
            }
        }
    }

    /// Applies an event to the cache and returns the resource version after it.
    fn apply_event(&self, call: &RequestInfo, event: &WatchEvent<'_>) -> Result<Option<u64>, WatchError> {
        let json = event.object.get();
        if event.type_ == "ERROR" {
            let status: Box<Status> = read_json(call, json.as_bytes())?;
            let (what, code) = (format!("watch {}", self.source.resource.kind), status.code);
            return Err(RequestError::Refused { what, code, status, after: None }.into());
        }
        let Some(head) = self.object_version(json) else { return Ok(None) };
        let version = head.resource_version;
        match event.type_.as_ref() {
            "BOOKMARK" => {}
            "DELETED" => self.map.remove(&head.key, version, ChangeSource::Watch),
            _ if !self.keeps(&head) || self.map.contains_version(&head) => {}
            _ => match self.decode_object(head, json) {
                Ok(seen) => self.map.observe(seen, ChangeSource::Watch),
                Err(head) => self.map.drop_unreadable(&head, ChangeSource::Watch),
            },
        }
        Ok(Some(version))
    }

    pub(super) fn object_version(&self, json: &str) -> Option<ObjectVersion> {
        object_version(json).map_err(|error| self.malformed("", &error)).ok()
    }

    /// Decodes an object; `Err` if it cannot be decoded.
    pub(super) fn decode_object(&self, head: ObjectVersion, json: &str) -> Result<Versioned<T>, ObjectVersion> {
        match (self.source.decode)(&head, json) {
            Ok(object) => Ok(Versioned::new(head, object)),
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
struct WatchEvent<'a> {
    #[serde(borrow, rename = "type")]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[cfg(test)]
mod tests;
