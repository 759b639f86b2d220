//! Kubernetes Events, for users who look with `kubectl describe`.
//!
//! They are sent off the reconcile path: a step queues one and goes on. When the queue is full they are dropped; an
//! Event never delays anything and is never retried.

use std::sync::Arc;

use http::Method;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

use super::{
    resource::Resource,
    transport::{RequestInfo, Transport, api_request},
};

/// Most Events that wait to be sent.
const QUEUE_CAPACITY: usize = 512;
/// Longest note that the API server accepts (bytes).
const MAX_NOTE_BYTES: usize = 1024;

/// Content of an Event, and its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventNote {
    /// `apiVersion` of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// True if something is wrong (type `Warning`).
    pub warning: bool,
    /// Action that decided, such as `deploy`.
    pub action: String,
    /// The reason, a CamelCase word.
    pub reason: String,
    /// The message, one sentence.
    pub message: String,
}

/// Queue of Events to send.
#[derive(Debug, Clone)]
pub struct EventQueue {
    sender: Sender<EventNote>,
    transport: Arc<Transport>,
}

/// Task that sends the queued Events, one after the other.
#[derive(Debug)]
pub struct EventSender {
    receiver: Receiver<EventNote>,
    transport: Arc<Transport>,
    instance: String,
}

/// Creates a queue and the task that empties it; `instance` names this replica.
pub fn event_queue(transport: Arc<Transport>, instance: String) -> (EventQueue, EventSender) {
    let (sender, receiver) = channel(QUEUE_CAPACITY);
    (EventQueue { sender, transport: transport.clone() }, EventSender { receiver, transport, instance })
}

impl EventQueue {
    /// Queues an Event, or drops it if the queue is full.
    pub fn emit(&self, note: EventNote) {
        if self.sender.try_send(note).is_err() {
            self.transport.metrics.event_dropped();
        }
    }
}

impl EventSender {
    /// Sends the queued Events. After `stop`, sends those that are in the queue and returns.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled(), if !self.receiver.is_closed() => {
                    self.receiver.close();
                    continue;
                }
                next = self.receiver.recv() => next,
            };
            let Some(note) = next else { return };
            let call =
                RequestInfo { verb: "create", kind: "Event", object: format!("{}/{}", note.namespace, note.name) };
            let path = Resource::EVENT.collection(Some(&note.namespace));
            let body = body(&note, &self.instance, Timestamp::now()).to_string().into_bytes();
            let request = api_request(Method::POST, path, Some("application/json"), body);
            if let Err(error) = self.transport.call(&call, request).await {
                tracing::debug!(%error, "event given up");
                self.transport.metrics.event_dropped();
            }
        }
    }
}

fn body(note: &EventNote, instance: &str, now: Timestamp) -> serde_json::Value {
    let mut end = note.message.len().min(MAX_NOTE_BYTES);
    while !note.message.is_char_boundary(end) {
        end -= 1;
    }
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "generateName": format!("{}-", note.name), "namespace": note.namespace },
        "eventTime": format!("{now:.6}"),
        "reportingController": crds::FIELD_MANAGER,
        "reportingInstance": instance,
        "action": if note.action.is_empty() { "step" } else { &note.action },
        "reason": note.reason,
        "type": if note.warning { "Warning" } else { "Normal" },
        "note": &note.message[..end],
        "regarding": {
            "apiVersion": note.api_version, "kind": note.kind,
            "namespace": note.namespace, "name": note.name, "uid": note.uid,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{response, scripted};

    fn note(message: &str) -> EventNote {
        EventNote {
            api_version: "agents.recif.dev/v1".into(),
            kind: "Agent",
            namespace: "ns".into(),
            name: "a".into(),
            uid: "u".into(),
            warning: true,
            action: "deploy".into(),
            reason: "ImagePull".into(),
            message: message.into(),
        }
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let body = body(&note(&"é".repeat(1000)), "me", Timestamp::UNIX_EPOCH);
        assert_eq!(body["note"].as_str().unwrap().len(), 1024);
        assert_eq!(body["eventTime"], "1970-01-01T00:00:00.000000Z");
    }

    #[tokio::test]
    async fn events_are_sent_and_the_overload_is_given_up() {
        let (transport, mut requests) = scripted(vec![response(201, "{}".into())]);
        let (queue, sender) = event_queue(transport, "me".into());
        for _ in 0..QUEUE_CAPACITY + 10 {
            queue.emit(note("x"));
        }
        let stop = CancellationToken::new();
        stop.cancel();
        sender.run(stop).await;
        let first = requests.recv().await.unwrap();
        assert_eq!(first.line, "POST /apis/events.k8s.io/v1/namespaces/ns/events");
        assert_eq!(first.body["regarding"]["uid"], "u");
    }
}
