//! Objects for tests of the read model.

use cluster::{ChangeSource, ObjectVersion};
use meta::Key;
use serde_json::{Value, json};

use super::*;

/// Fleet that a test changes.
pub(crate) struct TestFleet {
    pub(crate) fleet: Arc<FleetCache>,
    /// The uid of the controller of the objects that are put from now on.
    pub(crate) owner: Option<&'static str>,
    version: u64,
    columns: BTreeMap<&'static str, Vec<Column>>,
}

impl TestFleet {
    pub(crate) fn new() -> Self {
        let fleet = Arc::new(FleetCache::new("e"));
        fleet.go_live();
        Self { fleet, owner: None, version: 0, columns: BTreeMap::new() }
    }

    /// Creates or changes an Agent.
    pub(crate) fn agent(&mut self, namespace: &str, name: &str, phase: &str) {
        let ready = if phase == "Running" { "True" } else { "False" };
        self.put("Agent", namespace, name, json!({ "name": name, "framework": "corail", "modelId": "stub-echo" }), json!({
            "phase": phase, "observedGeneration": 1, "conditions": [{ "type": "Ready", "status": ready, "reason": phase,
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        }));
    }

    /// Creates or changes an object.
    pub(crate) fn put(&mut self, kind: &str, namespace: &str, name: &str, spec: Value, status: Value) {
        self.version += 1;
        let head = ObjectVersion {
            key: Key::new(namespace, name),
            uid: format!("{namespace}-{name}"),
            resource_version: self.version,
        };
        let owners = self.owner.map(
            |uid| json!([{ "apiVersion": "v1", "kind": "Owner", "name": "owner", "uid": uid, "controller": true }]),
        );
        let object = json!({ "metadata": { "namespace": namespace, "name": name, "uid": head.uid, "generation": 1, "ownerReferences": owners,
            "resourceVersion": self.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": spec, "status": status });
        let kind = ApiKind::find(kind).unwrap();
        let row = row(kind).unwrap();
        let columns = self.columns.entry(kind.name).or_insert_with(|| Column::of(kind));
        let new = Record::read(row, columns, &head, &object.to_string()).unwrap();
        let old = self.fleet.get(kind, &head.key).map(|entry| entry.record);
        self.fleet
            .apply_change(row, &Change { key: head.key, old, new: Some(Arc::new(new)), source: ChangeSource::Watch });
    }

    /// Deletes an object.
    pub(crate) fn delete(&mut self, kind: &str, namespace: &str, name: &str) {
        let kind = ApiKind::find(kind).unwrap();
        let key = Key::new(namespace, name);
        let old = self.fleet.get(kind, &key).map(|entry| entry.record);
        self.fleet.apply_change(row(kind).unwrap(), &Change { key, old, new: None, source: ChangeSource::Watch });
    }
}
