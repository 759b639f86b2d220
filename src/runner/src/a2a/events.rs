//! A task as server-sent events: the task as it is, then its text as it comes, last how it ended.
//!
//! Each event is a whole JSON-RPC answer to the request that asked for them. How it ended is an event of its own, also of a
//! task that had ended before the first event was written. A client that goes away only stops watching.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::Value;
use tokio::sync::watch;

use super::params::Version;
use super::tasks::{Task, TaskPhase, TaskProgress};
use super::{rpc, wire};

/// What is still to be told.
struct Watcher {
    version: Version,
    task: Arc<Task>,
    progress: watch::Receiver<TaskProgress>,
    /// Bytes of text that went out; none before the first event.
    sent: Option<usize>,
    ended: bool,
}

/// Answers the request `id` with the events of `task`.
pub(super) fn respond(version: Version, id: Value, task: Arc<Task>, history: Option<usize>) -> Response {
    let watcher = Watcher { version, progress: task.watch(), task, sent: None, ended: false };
    let events = stream::unfold(watcher, move |mut watcher| {
        let id = id.clone();
        async move {
            let event = watcher.next(history).await?;
            let event = Event::default().data(rpc::result(&id, event).to_string());
            Some((Ok::<_, Infallible>(event), watcher))
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

impl Watcher {
    /// The next event; none after the last.
    async fn next(&mut self, history: Option<usize>) -> Option<Value> {
        loop {
            if self.ended {
                return None;
            }
            {
                let progress = self.progress.borrow_and_update();
                let Some(sent) = self.sent else {
                    // A task that works may have said nothing yet: what it says from here on is told by events.
                    self.sent = Some(progress.text.len());
                    let task = wire::task(self.version, &self.task, &progress, history);
                    return Some(wire::wrapped(self.version, task));
                };
                if let Some(more) = progress.text.get(sent..).filter(|more| !more.is_empty()) {
                    self.sent = Some(progress.text.len());
                    return Some(wire::artifact_update(self.version, &self.task, more, sent > 0));
                }
                if progress.phase != TaskPhase::Working {
                    self.ended = true;
                    return Some(wire::status_update(self.version, &self.task, &progress));
                }
            }
            // The task holds the sender, so this fails only together with us.
            self.progress.changed().await.ok()?;
        }
    }
}
