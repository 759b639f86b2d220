//! Stored objects: the JSON of an object in one version, and what selectors and the garbage collector need to know of it.
//!
//! A text is a tenth of the size of the same object as a [`Value`], and it is what reads, lists and watches send. Only writes
//! parse it.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    kinds::Kind,
    object::{self, fields, finalizers, is_deleting, items, number, set_field, text},
    selectable,
};

/// An object in one version.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// JSON of the object without `apiVersion` and `kind`, as it is in lists of built-in kinds.
    text: Bytes,
    /// Version.
    pub(crate) version: u64,
    /// `metadata.uid`.
    pub(crate) uid: String,
    /// Labels.
    pub(crate) labels: Vec<(String, String)>,
    /// Fields by which objects of its kind are selected, by their dotted names.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// Owner references.
    pub(crate) owners: Vec<Owner>,
    /// Finalizers.
    pub(crate) finalizers: Vec<String>,
    /// It is being deleted.
    pub(crate) is_deleting: bool,
    /// It has time left to end, as a Pod has.
    pub(crate) has_grace: bool,
}

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Uid of the owner.
    pub(crate) uid: String,
    /// The owner's deletion in the foreground waits for the object.
    pub(crate) blocks: bool,
}

impl Snapshot {
    /// Makes the snapshot of an object of a kind, in the form in which the kind is stored.
    pub(crate) fn of(kind: &Kind, object: &mut Value) -> Self {
        let types = ["apiVersion", "kind"].map(|name| (name, fields(object).remove(name)));
        let text_of_object = Bytes::from(object.to_string());
        for (name, value) in types {
            set_field(object, name, value);
        }
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let owner = |reference: &Value| Owner {
            uid: text(reference, "/uid").to_owned(),
            blocks: reference["blockOwnerDeletion"] == Value::Bool(true),
        };
        Self {
            text: text_of_object,
            version: text(object, "/metadata/resourceVersion").parse().unwrap_or_default(),
            uid: object::uid(object).to_owned(),
            labels: labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect(),
            fields: selectable::fields(kind, object),
            owners: items(object, "/metadata/ownerReferences").iter().map(owner).collect(),
            finalizers: finalizers(object).map(str::to_owned).collect(),
            is_deleting: is_deleting(object),
            has_grace: number(object, "/metadata/deletionGracePeriodSeconds").unwrap_or_default() > 0,
        }
    }

    /// Returns the object. `kind` is the one in whose form it is stored.
    pub(crate) fn object(&self, kind: &Kind) -> Value {
        // Cannot fail: it was written from an object.
        let mut object = serde_json::from_slice(&self.text).unwrap_or_default();
        set_field(&mut object, "apiVersion", Some(kind.api_version().into()));
        set_field(&mut object, "kind", Some(kind.name.into()));
        object
    }

    /// Returns the JSON of the object without `apiVersion` and `kind`.
    pub(crate) fn json_without_types(&self) -> &str {
        // Cannot fail: it was written from a text.
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Adds the JSON of the object to a text. `kind` is the one in whose form it is stored.
    pub(crate) fn write_json(&self, kind: &Kind, to: &mut String) {
        to.push_str("{\"apiVersion\":\"");
        to.push_str(&kind.api_version());
        to.push_str("\",\"kind\":\"");
        to.push_str(kind.name);
        to.push_str("\",");
        // An object has metadata, so it is not empty.
        to.push_str(self.json_without_types().get(1..).unwrap_or_default());
    }

    /// Returns its length as text, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let kind = kinds::all().iter().find(|kind| kind.name == "Pod").unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": { "l": "x" }, "finalizers": ["f"],
                "ownerReferences": [{ "uid": "o", "blockOwnerDeletion": true }, { "uid": "p" }],
            },
            "spec": { "nodeName": "m", "text": "\"é\n" },
        });
        let snapshot = Snapshot::of(kind, &mut object.clone());
        assert_eq!(snapshot.object(kind), object);
        let mut text = String::new();
        snapshot.write_json(kind, &mut text);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
        assert_eq!((snapshot.version, snapshot.uid.as_str(), snapshot.is_deleting), (7, "u", false));
        assert_eq!(snapshot.labels, [("l".to_owned(), "x".to_owned())]);
        assert!(snapshot.fields.contains(&("spec.nodeName", "m".to_owned())), "{:?}", snapshot.fields);
        let owners = [("o", true), ("p", false)].map(|(uid, blocks)| Owner { uid: uid.to_owned(), blocks });
        assert_eq!(snapshot.owners, owners);
    }
}
