//! Implements [server-side apply](https://kubernetes.io/docs/reference/using-api/server-side-apply/) of children with its field
//! managers. Lists are owned as a whole, which is enough for the operator's manifests.

use std::collections::{BTreeMap, BTreeSet};

use machine::ApiError;
use serde_json::{Value, json};

use super::{
    Obj, ObjectId, Store,
    objects::OURS,
    patch::{escape, set},
};
use crate::ports::ChildManifest;

impl Store {
    /// Applies by force, as the operator does.
    pub(crate) fn apply(&mut self, manifest: &ChildManifest, uid: Option<&str>) -> Result<Obj, ApiError> {
        self.apply_as(OURS, manifest, uid)
    }

    /// Applies by force as this field manager: a field that others applied with another value is theirs no longer, one with the
    /// same value has both managers.
    pub(crate) fn apply_as(&mut self, by: &str, manifest: &ChildManifest, uid: Option<&str>) -> Result<Obj, ApiError> {
        let id = ObjectId::from(&manifest.child);
        let existing = self.get(&id).cloned();
        match (&existing, uid) {
            (None, None) if self.is_terminating(&id.namespace) => return Err(ApiError::NamespaceTerminating),
            (Some(_), None) => return Err(ApiError::WrongUid(format!("{id} exists"))),
            (None, Some(_)) => return Err(ApiError::WrongUid(format!("{id} is gone"))),
            (Some(found), Some(uid)) if found.uid() != uid => {
                return Err(ApiError::WrongUid(format!("{id} is another one")));
            }
            _ => {}
        }
        let selector = "/spec/selector/matchLabels";
        if by == OURS
            && let Some(found) = &existing
            && id.kind == "Deployment"
            && found.body.pointer(selector) != manifest.body.pointer(selector)
        {
            return Err(ApiError::SelectorImmutable(format!("{id} has another selector: delete the Deployment")));
        }
        let mut obj = existing.unwrap_or_else(|| {
            let body = &manifest.body;
            Obj::new(json!({"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {}}))
        });
        let wanted = leaves(&manifest.body);
        let dropped = obj.owned.iter().filter(|(path, all)| all.contains(by) && !wanted.contains_key(*path));
        for path in dropped.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            let left = obj.owned.entry(path.clone()).or_default();
            left.remove(by);
            if left.is_empty() {
                set(&mut obj.body, &path, None);
                obj.owned.remove(&path);
            }
        }
        for (path, value) in wanted {
            let owners = obj.owned.entry(path.clone()).or_default();
            if obj.body.pointer(&path) != Some(&value) {
                owners.clear();
            }
            owners.insert(by.to_owned());
            set(&mut obj.body, &path, Some(value));
        }
        if id.kind == "Deployment" && obj.body.pointer("/spec/replicas").is_none() {
            set(&mut obj.body, "/spec/replicas", Some(json!(1)));
        }
        Ok(self.put(&id, obj).expect("an apply does not delete"))
    }

    /// Sets (or, with `None`, removes) a field of an object as another client, which owns it from then on.
    pub(crate) fn edit_as(&mut self, id: &ObjectId, path: &str, value: Option<Value>, by: &str) {
        let Some(mut obj) = self.get(id).cloned() else { return };
        if obj.body.pointer(path) == value.as_ref() {
            return;
        }
        obj.owned.remove(path);
        if value.is_some() {
            obj.owned.insert(path.to_owned(), BTreeSet::from([by.to_owned()]));
        }
        set(&mut obj.body, path, value);
        self.put(id, obj);
    }
}

fn leaves(body: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    collect(body, String::new(), &mut found);
    for identity in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/metadata/uid"] {
        found.remove(identity);
    }
    found
}

fn collect(value: &Value, path: String, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, field) in fields {
                collect(field, format!("{path}/{}", escape(key)), found);
            }
        }
        leaf => drop(found.insert(path, leaf.clone())),
    }
}
