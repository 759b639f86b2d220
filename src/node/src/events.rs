//! Events of Pods, as a kubelet records them for `kubectl describe pod`: few, and one that repeats is counted.
//!
//! They are written off the path of the Pod: when the queue is full they are dropped, so an Event never delays anything.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::config::NODE_NAME;

/// Component that reports the Events.
const REPORTER: &str = "recif-node";
/// Most Events that wait to be written.
const QUEUED: usize = 256;
/// Most written Events that are remembered.
const MAX_WRITTEN: usize = 512;
/// Longest message that the API server takes, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Severity of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Severity {
    /// It is the usual course.
    Normal,
    /// Something is wrong.
    Warning,
}

impl Severity {
    /// Returns the type of an Event.
    fn type_(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Content of an Event. Two that are equal are one that repeats.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PodEvent {
    /// Namespace of the Pod.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) pod: String,
    /// Its uid.
    pub(crate) uid: String,
    /// Path of the container in its spec, such as `spec.containers{agent}`.
    pub(crate) field: String,
    pub(crate) severity: Severity,
    /// The reason, one of the kubelet's words.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Queue of Events. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct EventQueue(Sender<PodEvent>);

impl EventQueue {
    /// Queues an Event with as much of its message as the API server takes, or drops it if there is no room.
    pub(crate) fn record(&self, mut event: PodEvent) {
        let mut end = event.message.len().min(MAX_MESSAGE);
        while !event.message.is_char_boundary(end) {
            end -= 1;
        }
        event.message.truncate(end);
        if self.0.try_send(event).is_err() {
            tracing::debug!("an Event is dropped");
        }
    }
}

/// Task that writes the queued Events, one after the other.
pub(crate) struct EventWriter {
    client: Client,
    queue: Receiver<PodEvent>,
    /// Name and count of those that were written.
    written: HashMap<PodEvent, (String, i32)>,
}

/// Makes a queue and the task that empties it.
pub(crate) fn queue(client: Client) -> (EventQueue, EventWriter) {
    let (sender, queue) = channel(QUEUED);
    (EventQueue(sender), EventWriter { client, queue, written: HashMap::new() })
}

impl EventWriter {
    /// Writes Events until the queue is gone.
    pub(crate) async fn run(mut self) {
        while let Some(event) = self.queue.recv().await {
            if let Err(error) = self.write(event, Timestamp::now()).await {
                tracing::debug!(%error, "an Event is given up");
            }
        }
    }

    async fn write(&mut self, event: PodEvent, now: Timestamp) -> Result<(), kube::Error> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &event.namespace);
        if let Some((name, count)) = self.written.get_mut(&event) {
            *count += 1;
            let patch = json!({ "count": count, "lastTimestamp": Time(now) });
            match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                // The API server has removed it, because it was old.
                Err(kube::Error::Api(error)) if error.is_not_found() => {}
                patched => return patched.map(drop),
            }
        }
        let object = object(&event, now);
        let created = api.create(&PostParams::default(), &object).await?;
        if self.written.len() >= MAX_WRITTEN {
            self.written.clear();
        }
        self.written.insert(event, (created.metadata.name.unwrap_or_default(), 1));
        Ok(())
    }
}

/// Returns a new Event.
fn object(event: &PodEvent, now: Timestamp) -> Event {
    let time = Some(Time(now));
    Event {
        metadata: ObjectMeta {
            // As client-go names them.
            name: Some(format!("{}.{:x}", event.pod, now.as_nanosecond())),
            namespace: Some(event.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(event.namespace.clone()),
            name: Some(event.pod.clone()),
            uid: Some(event.uid.clone()),
            field_path: Some(event.field.clone()),
            ..ObjectReference::default()
        },
        type_: Some(event.severity.type_().to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(event.message.clone()),
        count: Some(1),
        first_timestamp: time.clone(),
        last_timestamp: time,
        source: Some(EventSource { component: Some(REPORTER.to_owned()), host: Some(NODE_NAME.to_owned()) }),
        reporting_component: Some(REPORTER.to_owned()),
        reporting_instance: Some(NODE_NAME.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use apiserver::ApiServer;
    use jiff::SignedDuration;
    use kube::api::{DeleteParams, ListParams};

    use super::*;

    fn event(message: &str) -> PodEvent {
        PodEvent {
            namespace: "default".to_owned(),
            pod: "shop-1".to_owned(),
            uid: "u".to_owned(),
            field: "spec.containers{agent}".to_owned(),
            severity: Severity::Warning,
            reason: "BackOff",
            message: message.to_owned(),
        }
    }

    #[tokio::test]
    async fn an_event_that_repeats_is_counted_until_it_is_gone() {
        let client = Client::new(ApiServer::new(Timestamp::now, |_| None), "default");
        let (_, mut writer) = queue(client.clone());
        let api: Api<Event> = Api::default_namespaced(client);
        let begin = Timestamp::from_second(1_800_000_000).unwrap();
        for (second, message) in [(0, "one"), (1, "one"), (2, "two"), (3, "one")] {
            writer.write(event(message), begin + SignedDuration::from_secs(second)).await.unwrap();
        }
        let of_pod = ListParams::default().fields("involvedObject.name=shop-1,involvedObject.uid=u");
        let list = async || {
            let mut found = api.list(&of_pod).await.unwrap().items;
            found.sort_by_key(|found| found.message.clone());
            found
        };
        let found = list().await;
        let counts: Vec<_> = found.iter().map(|found| (found.message.as_deref().unwrap(), found.count)).collect();
        assert_eq!(counts, [("one", Some(3)), ("two", Some(1))]);
        assert_eq!(found[0].first_timestamp.as_ref().unwrap().0, begin);
        assert_eq!(found[0].last_timestamp.as_ref().unwrap().0, begin + SignedDuration::from_secs(3));
        assert_eq!((found[0].type_.as_deref(), found[0].reason.as_deref()), (Some("Warning"), Some("BackOff")));
        assert_eq!(found[0].source.as_ref().unwrap().component.as_deref(), Some("recif-node"));
        assert_eq!(found[0].involved_object.field_path.as_deref(), Some("spec.containers{agent}"));

        api.delete(found[0].metadata.name.as_deref().unwrap(), &DeleteParams::default()).await.unwrap();
        writer.write(event("one"), begin + SignedDuration::from_secs(4)).await.unwrap();
        assert_eq!(list().await[0].count, Some(1), "it is another one");
    }

    #[tokio::test]
    async fn a_long_message_is_cut_between_characters_and_a_full_queue_holds_up_nothing() {
        let (queue, mut writer) = queue(Client::new(ApiServer::new(Timestamp::now, |_| None), "default"));
        queue.record(event(&format!("x{}", "é".repeat(1000))));
        assert_eq!(writer.queue.recv().await.unwrap().message.len(), 1023);
        (0..QUEUED + 10).for_each(|_| queue.record(event("x")));
    }
}
