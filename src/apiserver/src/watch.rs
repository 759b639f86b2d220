//! Watches: the changes of one kind as lines of JSON, from the ring of the store.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use http_body::Frame;
use serde_json::{Value, json};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep_until},
};

use crate::{
    builtin,
    errors::ApiError,
    forms::Form,
    kinds::Kind,
    lists::Scope,
    object::set_metadata,
    options::ListOptions,
    server::Shared,
    store::{Change, Store},
};

/// Time between two bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Time after which a watch ends that names none.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Longest time of a watch (one year); the end of one of 2^64 seconds overflows.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Annotation of the bookmark behind what was there at the beginning.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One watch.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    versions: Receiver<u64>,
    scope: Scope,
    form: Form,
    /// A table was sent, whose columns need not be sent again.
    has_columns: bool,
    bookmarks: bool,
    /// Version of the last change that was looked at.
    position: u64,
    lines: VecDeque<Bytes>,
    ends_at: Instant,
    next_bookmark: Instant,
    is_over: bool,
}

impl Watch {
    /// Begins a watch at the version that the options name, or with what is there.
    pub(crate) fn new(shared: Arc<Shared>, scope: Scope, form: Form, options: &ListOptions) -> Self {
        let versions = shared.versions.subscribe();
        let now = Instant::now();
        let timeout = options
            .timeout
            .filter(|seconds| *seconds > 0)
            .map_or(TIMEOUT, |seconds| Duration::from_secs(seconds).min(MAX_TIMEOUT));
        let mut watch = Self {
            versions,
            scope,
            form,
            has_columns: false,
            bookmarks: options.bookmarks,
            position: options.version.unwrap_or_default(),
            lines: VecDeque::new(),
            ends_at: now + timeout,
            next_bookmark: now + BOOKMARK_PERIOD,
            is_over: false,
            shared: shared.clone(),
        };
        let begins_with_all = options.initial_events.unwrap_or(options.version.unwrap_or_default() == 0);
        let store = shared.store();
        if begins_with_all {
            watch.position = store.version();
            let kind = watch.scope.kind(&shared.kinds);
            let all = watch.scope.list(&shared.kinds, &store);
            all.into_iter().for_each(|object| watch.push("ADDED", object));
            if options.initial_events == Some(true) && options.bookmarks {
                watch.push("BOOKMARK", bookmark(kind, watch.position, true));
            }
        } else if watch.position == 0 {
            watch.position = store.version();
        }
        drop(store);
        watch
    }

    /// Returns the response body.
    pub(crate) fn into_frames(self) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
        stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((Ok(Frame::data(line)), watch))
        })
    }

    /// Waits for the next line; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.is_over {
                return None;
            }
            self.versions.mark_unchanged();
            self.read();
            if !self.lines.is_empty() {
                continue;
            }
            let at = if self.bookmarks { self.next_bookmark.min(self.ends_at) } else { self.ends_at };
            tokio::select! {
                // Cannot fail: the sender is in what the watch shares.
                _ = self.versions.changed() => {}
                () = sleep_until(at) => {
                    self.is_over = at == self.ends_at;
                    self.next_bookmark = at + BOOKMARK_PERIOD;
                    if self.bookmarks {
                        let kind = self.scope.kind(&self.shared.kinds);
                        let object = bookmark(kind, self.position, false);
                        self.push("BOOKMARK", object);
                    }
                }
            }
        }
    }

    /// Adds a line with an object, in the form that the client asks for.
    fn push(&mut self, what: &str, object: Value) {
        let kind = self.scope.kind(&self.shared.kinds);
        let object = self.form.object(kind, object, self.shared.now(), !self.has_columns);
        self.has_columns = true;
        self.lines.push_back(line(what, object));
    }

    /// Takes the changes since the last time.
    fn read(&mut self) {
        let shared = self.shared.clone();
        let store = shared.store();
        match store.changes_after(self.position) {
            Ok(changes) => {
                let events: Vec<_> = changes.filter_map(|change| event(&shared.kinds, &self.scope, change)).collect();
                events.into_iter().for_each(|(what, object)| self.push(what, object));
                // A watch may begin at a version of the future.
                self.position = self.position.max(store.version());
            }
            Err(oldest) => {
                let status = ApiError::expired(self.position, oldest).status();
                self.lines.push_back(line("ERROR", status));
                self.is_over = true;
            }
        }
    }
}

/// Returns the type and object by which a watch learns of a change; none if the change does not concern it.
pub(crate) fn event(kinds: &[Kind], scope: &Scope, change: &Change) -> Option<(&'static str, Value)> {
    let kind = scope.kind(kinds);
    if !scope.has(kinds, &change.key) {
        return None;
    }
    let selected = |object: &Option<Arc<Value>>| {
        let object = builtin::to_view(kind, (**object.as_ref()?).clone());
        scope.selector.matches(&object).then_some(object)
    };
    match (selected(&change.old), selected(&change.new)) {
        (None, Some(new)) => Some(("ADDED", new)),
        (Some(_), Some(new)) => Some(("MODIFIED", new)),
        (Some(mut old), None) => {
            // An object that is not selected any more is deleted for this watch, in the version of the change.
            set_metadata(&mut old, "resourceVersion", Some(change.version.to_string().into()));
            Some(("DELETED", old))
        }
        (None, None) => None,
    }
}

/// Returns one line of a watch.
fn line(what: &str, object: Value) -> Bytes {
    let mut line = json!({ "type": what, "object": object }).to_string();
    line.push('\n');
    line.into()
}

fn bookmark(kind: &Kind, version: u64, is_end_of_initial_events: bool) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.name,
        "metadata": { "resourceVersion": version.to_string() },
    });
    if is_end_of_initial_events {
        object["metadata"]["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
    }
    object
}

/// Returns the version of a list, if it can be served.
///
/// # Errors
/// 504 for a version of the future, 410 for an older one that is asked for exactly.
pub(crate) fn list_version(store: &Store, options: &ListOptions) -> Result<u64, ApiError> {
    let current = store.version();
    match options.version.unwrap_or_default() {
        wanted if wanted > current => Err(ApiError::too_large_version(wanted, current)),
        wanted if options.exact && wanted < current => Err(ApiError::expired(wanted, current)),
        _ => Ok(current),
    }
}
