//! Builds labels, selectors, owner references and the common part of the apply body of children.

use std::collections::BTreeMap;

use crds::MANAGED_BY;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

use crate::ports::{ChildKind, ChildManifest, ChildRef};

/// Label that names the Agent on its children.
pub const AGENT_LABEL: &str = "recif.dev/agent";

pub(super) const NAME: &str = "app.kubernetes.io/name";
pub(super) const PART_OF: &str = "app.kubernetes.io/part-of";
/// Returns the label that names the object of this kind (`Agent`) on its children: [`AGENT_LABEL`].
pub fn kind_label(kind: &str) -> String {
    format!("recif.dev/{}", kind.to_lowercase())
}

/// Label that names the tool that manages a child.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Returns the labels of every child of `name`, whose kind is named by the label `kind`, such as [`AGENT_LABEL`].
pub fn child_labels(kind: &str, name: &str) -> BTreeMap<String, String> {
    let mut labels = selector_labels(kind, name);
    labels.insert(PART_OF.to_owned(), "recif".to_owned());
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
    labels
}

/// Returns the labels by which a workload's Pods are selected: only those that never change.
pub fn selector_labels(kind: &str, name: &str) -> BTreeMap<String, String> {
    [NAME, kind].into_iter().map(|label| (label.to_owned(), name.to_owned())).collect()
}

/// Returns [`selector_labels`] as the text of a label selector.
pub fn selector_text(kind: &str, name: &str) -> String {
    let terms: Vec<_> =
        selector_labels(kind, name).into_iter().map(|(label, value)| format!("{label}={value}")).collect();
    terms.join(",")
}

/// Returns the owner reference that makes `owner` the controller of a child. An owner from the API server always has a uid.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": owner.name_any(),
        "uid": owner.uid().unwrap_or_default(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Returns the ConfigMap with the definitions of a server's tools, and those that wait until they are accepted. It does not block
/// the deletion of its owner (`blockOwnerDeletion`), so no permission to set the owner's finalizers is needed.
pub fn tools_manifest<K: Resource<DynamicType = ()>>(
    owner: &K,
    child: ChildRef,
    text: &str,
    held: Option<&str>,
) -> ChildManifest {
    let mut fields = json!({ "data": { crds::tool_server::TOOLS_KEY: text } });
    if let Some(held) = held {
        fields["data"][crds::tool_pins::HELD_KEY] = json!(held);
    }
    let mut manifest = self::child(owner, &kind_label(&K::kind(&())), child.kind, child.name, fields);
    if let Some(reference) = manifest.body.pointer_mut("/metadata/ownerReferences/0") {
        reference["blockOwnerDeletion"] = json!(false);
    }
    manifest
}

/// Returns a Tool that a server publishes, with an annotation; it does not block the deletion of its owner either, as
/// [`tools_manifest`].
pub fn tool_manifest<K: Resource<DynamicType = ()>>(
    owner: &K,
    name: String,
    spec: &Value,
    annotation: (&str, &str),
) -> ChildManifest {
    let label = kind_label(&K::kind(&()));
    let mut manifest = self::child(owner, &label, ChildKind::Tool, name, json!({ "spec": spec }));
    manifest.body["metadata"]["annotations"] = json!({ annotation.0: annotation.1 });
    if let Some(reference) = manifest.body.pointer_mut("/metadata/ownerReferences/0") {
        reference["blockOwnerDeletion"] = json!(false);
    }
    manifest
}

/// Builds the apply body of a child of `owner`: the part that all kinds share, and `fields`.
pub(super) fn child<K: Resource<DynamicType = ()>>(
    owner: &K,
    label: &str,
    kind: ChildKind,
    name: String,
    fields: Value,
) -> ChildManifest {
    let namespace = owner.namespace().unwrap_or_default();
    let mut body = Map::new();
    body.insert("apiVersion".to_owned(), json!(kind.api_version()));
    body.insert("kind".to_owned(), json!(kind.as_str()));
    body.insert(
        "metadata".to_owned(),
        json!({
            "name": &name,
            "namespace": &namespace,
            "labels": child_labels(label, &owner.name_any()),
            "ownerReferences": [controller_reference(owner)],
        }),
    );
    if let Value::Object(fields) = fields {
        body.extend(fields);
    }
    ChildManifest { child: ChildRef { kind, namespace, name }, body: Value::Object(body) }
}
