//! Who may use an object of kagent's first API: it has no `allowedNamespaces`, and every namespace uses it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{is_first_api, split_reference};
use crate::{input::ObjectId, source::Source, subject::Subject};

/// Label by which Kubernetes names a namespace.
const NAME: &str = "kubernetes.io/metadata.name";

/// Admits the other namespaces of the input whose agents use an object of the first API; `member` is where a tool names it.
pub(super) fn admit_users(subject: &Subject<'_>, member: &str, ours: &mut Map<String, Value>) {
    if !is_first_api(subject) {
        return;
    }
    let users: BTreeSet<String> = subject
        .world
        .objects()
        .map(|object| (ObjectId::of(&object.value), &object.value))
        .filter(|(id, object)| id.kind == "Agent" && Source::of(object) == Some(Source::Kagent))
        .filter(|(id, _)| !id.namespace.is_empty() && id.namespace != subject.namespace())
        .filter(|(id, object)| uses(object, member, &id.namespace, (subject.namespace(), subject.id.name.as_str())))
        .map(|(id, _)| id.namespace)
        .collect();
    if users.is_empty() {
        return;
    }
    let names = users.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    subject.notes.change(
        "spec.allowedNamespaces",
        format!("admits {names}, whose agents use it: ours are for their own namespace unless they say so"),
    );
    let labels = json!({ "matchExpressions": [{ "key": NAME, "operator": "In", "values": users }] });
    ours.insert("allowedNamespaces".to_owned(), json!({ "from": "Selector", "selector": labels }));
}

/// Reports whether a tool of an agent names an object.
fn uses(agent: &Value, member: &str, here: &str, target: (&str, &str)) -> bool {
    let tools = agent.pointer("/spec/tools").and_then(Value::as_array).into_iter().flatten();
    let mut named = tools.filter_map(|tool| tool.pointer(member)?.as_str());
    named.any(|named| split_reference(named, here) == target)
}
