//! Streams a task as server-sent events (SSE): the task as it is, then its text as it arrives, last its final state.
//!
//! Each event is a complete JSON-RPC response to the request that subscribed. The final state is an event of its own,
//! also for a task that had ended before the first event was written. A client that disconnects only stops watching:
//! the task runs on.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::Value;
use tokio::sync::watch;

use super::tasks::{Task, TaskPhase, TaskProgress};
use super::wire::WireFormat;
use super::{rpc, wire};

/// State of one event stream: the task and how much of it was sent.
struct Watcher {
    format: WireFormat,
    task: Arc<Task>,
    progress: watch::Receiver<TaskProgress>,
    /// Bytes of text that were sent; `None` before the first event.
    sent: Option<usize>,
    ended: bool,
    /// Set for a [copy](super::deciding) of a task, which may fail while the task works on elsewhere.
    is_copy: bool,
}

/// Responds to the request `id` with the events of `task`. Those of a copy that fails break off: the client asks for the task itself.
pub(super) fn respond(
    format: WireFormat,
    id: Value,
    task: Arc<Task>,
    history: Option<usize>,
    is_copy: bool,
) -> Response {
    let watcher = Watcher { format, progress: task.watch(), task, sent: None, ended: false, is_copy };
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
    /// Returns the next event; `None` after the last.
    async fn next(&mut self, history: Option<usize>) -> Option<Value> {
        loop {
            if self.ended {
                return None;
            }
            {
                let progress = self.progress.borrow_and_update();
                if self.is_copy && progress.phase == TaskPhase::Failed {
                    return None;
                }
                let Some(sent) = self.sent else {
                    // A working task may have no text yet: its text from here on is sent as artifact updates.
                    self.sent = Some(progress.text.len());
                    let task = wire::task(self.format, &self.task, &progress, history);
                    return Some(wire::wrapped(self.format.version, task));
                };
                if let Some(more) = progress.text.get(sent..).filter(|more| !more.is_empty()) {
                    self.sent = Some(progress.text.len());
                    return Some(wire::artifact_update(self.format.version, &self.task, more, sent > 0));
                }
                if progress.phase != TaskPhase::Working {
                    self.ended = true;
                    return Some(wire::status_update(self.format, &self.task, &progress));
                }
            }
            // The task holds the sender, and this watcher holds the task: this does not fail.
            self.progress.changed().await.ok()?;
        }
    }
}
