//! Watches: the changes of one kind as lines of JSON, from the ring of the store. A watch sleeps until an object of its kind
//! changes, or a bookmark or its end is due.

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
    builtin, errors::StatusError, forms::Form, kinds::Kind, lists::Scope, object::set_metadata, options::ListOptions,
    ring::Change, snapshot::Snapshot, state::ServerState, store::Store,
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
    shared: Arc<ServerState>,
    /// Receiver that is notified of changes of the kind.
    changes: Receiver<()>,
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
    /// It could not follow, and the client has got an error event.
    is_expired: bool,
}

impl Watch {
    /// Begins a watch at the version that the options name, or with what is there.
    pub(crate) fn new(
        shared: Arc<ServerState>,
        store: &Store,
        scope: Scope,
        form: Form,
        options: &ListOptions,
    ) -> Self {
        let now = Instant::now();
        let timeout = options
            .timeout
            .filter(|seconds| *seconds > 0)
            .map_or(TIMEOUT, |seconds| Duration::from_secs(seconds).min(MAX_TIMEOUT));
        let mut watch = Self {
            changes: shared.changes_of(scope.stored_kind(shared.kinds)),
            scope,
            form,
            has_columns: false,
            bookmarks: options.bookmarks,
            position: options.version.unwrap_or_default(),
            lines: VecDeque::new(),
            ends_at: now + timeout,
            next_bookmark: now + BOOKMARK_PERIOD,
            is_over: false,
            is_expired: false,
            shared,
        };
        let begins_with_all = options.initial_events.unwrap_or(options.version.unwrap_or_default() == 0);
        if begins_with_all {
            watch.position = store.version();
            for object in watch.scope.snapshots(watch.shared.kinds, store) {
                watch.push_stored("ADDED", object);
            }
            if options.initial_events == Some(true) && options.bookmarks {
                watch.push_bookmark(true);
            }
        } else if watch.position == 0 {
            watch.position = store.version();
        }
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
            self.changes.mark_unchanged();
            self.read();
            if !self.lines.is_empty() {
                continue;
            }
            let at = if self.bookmarks { self.next_bookmark.min(self.ends_at) } else { self.ends_at };
            tokio::select! {
                // Cannot fail: the sender is in what the watch shares.
                _ = self.changes.changed() => {}
                () = sleep_until(at) => {
                    // A bookmark passes over the changes of other kinds, which have not woken the watch.
                    self.read();
                    self.is_over |= at == self.ends_at;
                    self.next_bookmark = at + BOOKMARK_PERIOD;
                    if self.bookmarks && !self.is_expired {
                        self.push_bookmark(false);
                    }
                }
            }
        }
    }

    /// Adds a line with an object, in the form that the client asks for.
    fn push(&mut self, what: &str, object: Value) {
        let kind = self.scope.kind(self.shared.kinds);
        let object = self.form.object(kind, object, self.shared.now(), !self.has_columns);
        self.has_columns = true;
        self.lines.push_back(line(what, &object.to_string()));
    }

    /// Adds a line with a stored object. Its text is sent as it is stored, if the client asks for nothing else.
    fn push_stored(&mut self, what: &str, object: &Snapshot) {
        let kind = self.scope.kind(self.shared.kinds);
        let stored = &self.shared.kinds[self.scope.stored_kind(self.shared.kinds)];
        if self.form == Form::Whole && !kind.is_event_view() {
            let mut text = String::with_capacity(object.len() + 64);
            object.write_json(stored, &mut text);
            self.lines.push_back(line(what, &text));
        } else {
            self.push(what, builtin::to_view(kind, object.object(stored)));
        }
    }

    fn push_bookmark(&mut self, is_end_of_initial_events: bool) {
        let kind = self.scope.kind(self.shared.kinds);
        self.push("BOOKMARK", bookmark(kind, self.position, is_end_of_initial_events));
    }

    /// Takes the changes since the last time.
    fn read(&mut self) {
        let shared = self.shared.clone();
        let store = shared.store();
        match store.changes_after(self.scope.stored_kind(shared.kinds), self.position) {
            Ok(changes) => {
                for change in changes {
                    self.push_change(change);
                }
                // A watch may begin at a version of the future.
                self.position = self.position.max(store.version());
            }
            Err(oldest) => {
                let status = StatusError::expired(self.position, oldest).status();
                self.lines.push_back(line("ERROR", &status.to_string()));
                (self.is_over, self.is_expired) = (true, true);
            }
        }
    }

    /// Adds the line by which the watch learns of a change, if the change concerns it.
    fn push_change(&mut self, change: &Change) {
        let selected = |object: &Option<Arc<Snapshot>>| {
            object.clone().filter(|object| self.scope.has(&change.key.namespace, object))
        };
        match (selected(&change.old), selected(&change.new)) {
            (None, Some(new)) => self.push_stored("ADDED", &new),
            (Some(_), Some(new)) => self.push_stored("MODIFIED", &new),
            (Some(old), None) => {
                // An object that is not selected any more is deleted for this watch, in the version of the change.
                let stored = &self.shared.kinds[change.key.kind];
                let mut object = builtin::to_view(self.scope.kind(self.shared.kinds), old.object(stored));
                set_metadata(&mut object, "resourceVersion", Some(change.version.to_string().into()));
                self.push("DELETED", object);
            }
            (None, None) => {}
        }
    }
}

/// Returns one line of a watch, with an object in JSON.
fn line(what: &str, object: &str) -> Bytes {
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n").into()
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
pub(crate) fn list_version(store: &Store, options: &ListOptions) -> Result<u64, StatusError> {
    let current = store.version();
    match options.version.unwrap_or_default() {
        wanted if wanted > current => Err(StatusError::too_large_version(wanted, current)),
        wanted if options.exact && wanted < current => Err(StatusError::expired(wanted, current)),
        _ => Ok(current),
    }
}
