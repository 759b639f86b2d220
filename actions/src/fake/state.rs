//! Compares the end states of two runs: everything that a user could see, without uids, times and resource versions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Obj, ObjectId, Store};

impl Store {
    /// Returns the state of the whole cluster as far as two runs must agree.
    pub(crate) fn end_state(&self) -> BTreeMap<String, Value> {
        self.objs.iter().map(|(id, obj)| (id.to_string(), self.comparable(id, obj))).collect()
    }

    fn comparable(&self, id: &ObjectId, obj: &Obj) -> Value {
        let owners = obj.owners();
        let owners = owners.iter().map(|owner| format!("{}/{}", owner["kind"], owner["name"]));
        let mut state = json!({
            "labels": obj.labels(),
            "owners": owners.collect::<Vec<_>>(),
            "finalizers": obj.finalizers(),
            "deleting": obj.is_deleting(),
            "spec": obj.body.get("spec"),
            "data": obj.body.get("data"),
            "managers": obj.owned.iter().filter(|(path, _)| !path.starts_with("/metadata/ownerReferences")).collect::<BTreeMap<_, _>>(),
        });
        if crds::KINDS.iter().any(|kind| kind.name == id.kind) {
            state["status"] = status(obj);
        } else if id.kind == "Pod" {
            state["status"] = obj.body["status"].clone();
        }
        state
    }
}

/// Returns the status without its history, which says what happened on the way; the record of an overcome failure expires in
/// time.
fn status(obj: &Obj) -> Value {
    let mut status = obj.body.get("status").cloned().unwrap_or_default();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"].take();
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    // A child that was created again in Running is as before; its new uid is stored with the next write.
    for child in status["children"].as_array_mut().into_iter().flatten() {
        child["uid"].take();
    }
    if let Some(children) = status["children"].as_array_mut() {
        children.sort_by_key(|child| format!("{}/{}", child["kind"], child["name"]));
    }
    if let Some(fields) = status.as_object_mut() {
        fields.remove("history");
    }
    status
}
