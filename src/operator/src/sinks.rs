//! Sink that queues what users should know about steps as Kubernetes Events.

use cluster::{EventNote, EventQueue};
use crds::{GROUP, VERSION};
use machine::{Sink, StepRecord};

/// Sink that emits Kubernetes Events.
#[derive(Debug)]
pub(super) struct EventSink(pub(super) EventQueue);

impl Sink for EventSink {
    fn record(&self, step: &StepRecord) {
        let Some(announce) = &step.event else { return };
        self.0.emit(EventNote {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: step.kind,
            namespace: step.namespace.clone(),
            name: step.name.clone(),
            uid: step.uid.clone(),
            warning: announce.warning,
            action: step.action.to_owned(),
            reason: announce.reason.clone(),
            message: announce.message.clone(),
        });
    }
}
