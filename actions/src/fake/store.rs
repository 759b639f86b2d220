//! Simulates the API server's storage: uids, resource versions, generations, finalizers, deletion, and the log that watches read.

use crds::pod_problem::PodProblem;
use std::collections::{BTreeMap, BTreeSet};

use machine::{ApiError, Clock};
use serde_json::{Value, json};

use super::{
    Obj, ObjectId, SimClock,
    patch::{assert_whole_seconds, patched},
};

/// Propagation policy of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cascade {
    Background,
    Foreground,
    Orphan,
}

/// Health of the Pods of all Deployments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Health {
    /// Ready after three seconds.
    Good,
    /// Never ready; with the problem, if the kubelet reports one.
    Bad(Option<PodProblem>),
    /// Cannot be created, for example because of a quota.
    Refused,
    /// Cannot be created with a new template, because the ReplicaSet is refused.
    NoReplicaSet,
}

/// Watch event.
#[derive(Debug, Clone)]
pub(crate) struct StoreChange {
    pub(crate) rv: u64,
    pub(crate) id: ObjectId,
    pub(crate) before: Option<Obj>,
    pub(crate) after: Option<Obj>,
}

/// Storage of the API server.
///
/// Invariant: `rv` grows with every change, and `log` holds the changes in this order.
#[derive(Clone)]
pub(crate) struct Store {
    pub(super) clock: SimClock,
    pub(super) objs: BTreeMap<ObjectId, Obj>,
    pub(crate) log: Vec<StoreChange>,
    rv: u64,
    incarnations: BTreeMap<ObjectId, u32>,
    terminating: BTreeSet<String>,
    /// Kinds that the namespace controller has not come to yet.
    pub(crate) not_yet_deleted: BTreeSet<&'static str>,
    pub(super) progressed: BTreeMap<ObjectId, std::time::Duration>,
    /// Deployments that are not at rest.
    pub(super) busy: BTreeSet<ObjectId>,
    /// True if an object was deleted, or was created for an owner that is gone.
    pub(super) garbage: bool,
    /// True if the garbage collector is suspended.
    pub(crate) lazy: bool,
    pub(super) uids: BTreeSet<String>,
    /// Version and time up to which the controllers have nothing to do.
    pub(super) rested: Option<(u64, std::time::Duration)>,
    /// Number of times that each object was added and deleted.
    pub(crate) counts: BTreeMap<ObjectId, (u32, u32)>,
    pub(super) health: Health,
    /// Time that a Pod takes to end.
    pub(crate) grace: std::time::Duration,
    /// Status fields that the CRDs do not know, which the API server drops without an error.
    pub(crate) unknown: &'static [&'static str],
}

impl Store {
    pub(super) fn new(clock: SimClock) -> Self {
        Self {
            clock,
            objs: BTreeMap::new(),
            log: Vec::new(),
            rv: 100,
            incarnations: BTreeMap::new(),
            terminating: BTreeSet::new(),
            not_yet_deleted: BTreeSet::new(),
            progressed: BTreeMap::new(),
            busy: BTreeSet::new(),
            garbage: false,
            lazy: false,
            uids: BTreeSet::new(),
            rested: None,
            counts: BTreeMap::new(),
            health: Health::Good,
            grace: std::time::Duration::ZERO,
            unknown: &[],
        }
    }

    /// Sets the health of the Pods of all Deployments from now on.
    pub(crate) fn set_health(&mut self, health: Health) {
        self.health = health;
        self.busy = self.objs.keys().filter(|id| id.kind == "Deployment").cloned().collect();
        self.rested = None;
    }

    pub(crate) fn get(&self, id: &ObjectId) -> Option<&Obj> {
        self.objs.get(id)
    }

    /// Returns a part of an object; null if it does not exist.
    pub(crate) fn at(&self, id: &ObjectId, pointer: &str) -> Value {
        self.get(id).and_then(|obj| obj.body.pointer(pointer)).cloned().unwrap_or_default()
    }

    /// Creates an object as another client.
    pub(crate) fn create(&mut self, id: &ObjectId, body: Value) {
        assert!(self.get(id).is_none(), "{id} exists");
        self.put(id, Obj::new(body));
    }

    /// Changes an object as another client.
    pub(crate) fn edit(&mut self, id: &ObjectId, change: impl FnOnce(&mut Value)) {
        let Some(mut obj) = self.get(id).cloned() else { return };
        change(&mut obj.body);
        self.put(id, obj);
    }

    /// Deletes an object as another client.
    pub(crate) fn delete(&mut self, id: &ObjectId, cascade: Cascade) {
        let Some(mut obj) = self.get(id).cloned() else { return };
        let mut finalizers = obj.finalizers();
        if id.kind == "Pod" && !obj.is_deleting() {
            obj.body["metadata"]["annotations"]["since"] = json!(self.clock.elapsed().as_millis().to_string());
        }
        let extra = match cascade {
            _ if id.kind == "Pod" => Some("kubelet"),
            Cascade::Background => None,
            Cascade::Foreground => Some("foregroundDeletion"),
            Cascade::Orphan => Some("orphan"),
        };
        if let Some(extra) = extra.filter(|extra| !finalizers.iter().any(|found| found == extra)) {
            finalizers.push(extra.to_owned());
            obj.set_finalizers(&finalizers);
        }
        if !obj.is_deleting() {
            let now = json!(self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            obj.metadata().insert("deletionTimestamp".to_owned(), now);
        }
        self.put(id, obj);
    }

    /// Deletes the namespace as another client.
    pub(crate) fn delete_namespace(&mut self, namespace: &str) {
        self.terminating.insert(namespace.to_owned());
        self.rested = None;
    }

    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        self.terminating.contains(namespace)
    }

    pub(super) fn has_terminating(&self) -> bool {
        !self.terminating.is_empty()
    }

    /// Patches the status subresource: only the status can change.
    pub(crate) fn patch_status(&mut self, id: &ObjectId, patch: &Value) -> Result<Obj, ApiError> {
        let mut obj = self.get(id).cloned().ok_or(ApiError::NotFound)?;
        let mut status = patched(&obj.body, patch)?["status"].take();
        assert_whole_seconds(&status);
        if status.is_null() {
            status = json!({});
        }
        if let Some(fields) = status.as_object_mut() {
            fields.retain(|field, _| !self.unknown.contains(&field.as_str()));
        }
        obj.body["status"] = status;
        Ok(self.put(id, obj).expect("a status does not delete"))
    }

    /// Patches the metadata and leaves the status alone; returns `None` if the last finalizer was removed and the object is gone.
    pub(crate) fn patch_metadata(&mut self, id: &ObjectId, patch: &Value) -> Result<Option<Obj>, ApiError> {
        let old = self.get(id).cloned().ok_or(ApiError::NotFound)?;
        let mut obj = old.clone();
        obj.body["metadata"] = patched(&old.body, patch)?["metadata"].take();
        let new = obj.finalizers().into_iter().any(|found| !old.finalizers().contains(&found));
        if old.is_deleting() && new {
            return Err(ApiError::Invalid("no new finalizers can be added if the object is being deleted".into()));
        }
        Ok(self.put(id, obj))
    }

    /// Stores an object, or removes it if it is being deleted and has no finalizer. Returns the stored object, if it still
    /// exists.
    pub(super) fn put(&mut self, id: &ObjectId, mut obj: Obj) -> Option<Obj> {
        let old = self.objs.get(id).cloned();
        if obj.is_deleting() && obj.finalizers().is_empty() {
            self.remove(id);
            return None;
        }
        if old.as_ref() == Some(&obj) {
            return old;
        }
        self.rv += 1;
        let rv = self.rv;
        let generation = old.as_ref().map_or(1, |old| {
            let moved = old.body.get("spec") != obj.body.get("spec") || old.is_deleting() != obj.is_deleting();
            old.number("/metadata/generation") + i64::from(moved)
        });
        // Default of the CRD for an object without a status.
        if obj.body["status"].is_null() && crds::KINDS.iter().any(|kind| kind.name == id.kind) {
            obj.body["status"] = meta::CommonStatus::initial();
        }
        if old.is_none() {
            let nth = self.incarnations.entry(id.clone()).or_default();
            *nth += 1;
            let uid = format!("{}-{}-{nth}", id.kind, id.name).to_lowercase();
            self.counts.entry(id.clone()).or_default().0 += 1;
            obj.metadata().insert("uid".to_owned(), json!(uid));
        }
        let metadata = obj.metadata();
        metadata.insert("name".to_owned(), json!(id.name));
        metadata.insert("namespace".to_owned(), json!(id.namespace));
        metadata.insert("generation".to_owned(), json!(generation));
        metadata.insert("resourceVersion".to_owned(), json!(rv.to_string()));
        let orphan = |obj: &Obj| {
            let owners = obj.owners();
            !owners.is_empty()
                && !owners.iter().any(|owner| self.uids.contains(owner["uid"].as_str().unwrap_or_default()))
        };
        self.garbage |= obj.is_deleting() || orphan(&obj);
        self.uids.insert(obj.uid().to_owned());
        self.mark_busy(id, &obj);
        self.objs.insert(id.clone(), obj.clone());
        self.log.push(StoreChange { rv, id: id.clone(), before: old, after: Some(obj.clone()) });
        Some(obj)
    }

    pub(super) fn remove(&mut self, id: &ObjectId) {
        let Some(before) = self.objs.remove(id) else { return };
        self.rv += 1;
        self.garbage = true;
        self.uids.remove(before.uid());
        self.mark_busy(id, &before);
        self.counts.entry(id.clone()).or_default().1 += 1;
        self.log.push(StoreChange { rv: self.rv, id: id.clone(), before: Some(before), after: None });
    }

    /// Marks the Deployment of this object, if it has one, as not at rest.
    fn mark_busy(&mut self, id: &ObjectId, obj: &Obj) {
        let name = match id.kind {
            "Deployment" => id.name.clone(),
            "Pod" => obj.text("/metadata/ownerReferences/0/name").to_owned(),
            _ => return,
        };
        self.busy.insert(ObjectId { kind: "Deployment", namespace: id.namespace.clone(), name });
    }

    pub(super) fn last_rv(&self) -> u64 {
        self.rv
    }
}
