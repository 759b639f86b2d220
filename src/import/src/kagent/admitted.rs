//! Namespaces that use an object of another one, where kagent asks no object whether they may: Agents and ToolServers of its first API,
//! which has no `allowedNamespaces`, and what the URL of a server leads to. Ours admit those of the input.
//!
//! An agent of the second API that names an MCPServer or a Service of another namespace is refused by kagent, so it admits nothing.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{FIRST_API, is_first_api, service_host::ServiceHost, split_reference};
use crate::{input::ObjectId, source::Source, subject::Subject, world::World};

/// Label by which Kubernetes names a namespace.
const NAME: &str = "kubernetes.io/metadata.name";

/// Admits the other namespaces of the input whose agents use an object of the first API; `member` is where a tool names it.
pub(super) fn admit_users(subject: &Subject<'_>, member: &str, ours: &mut Map<String, Value>) {
    if !is_first_api(subject) {
        return;
    }
    let (home, name) = (subject.namespace(), subject.id.name.as_str());
    let users = namespaces(subject.world, home, |id, object| {
        id.kind == "Agent" && object["apiVersion"] == FIRST_API && uses(object, member, &id.namespace, (home, name))
    });
    admit(subject, &users, "whose agents use it", ours);
}

/// Admits the other namespaces of the input with servers whose URL leads to the Service of an MCPServer.
pub(super) fn admit_by_url(subject: &Subject<'_>, ours: &mut Map<String, Value>) {
    let (home, name) = (subject.namespace(), subject.id.name.as_str());
    let users = namespaces(subject.world, home, |id, object| {
        let service = url(&id.kind, object).and_then(|url| ServiceHost::of(url, subject.world));
        service.is_some_and(|service| service.namespace == home && service.name == name)
    });
    admit(subject, &users, "whose servers lead to it", ours);
}

fn admit(subject: &Subject<'_>, users: &BTreeSet<String>, why: &str, ours: &mut Map<String, Value>) {
    if users.is_empty() {
        return;
    }
    let names = users.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    subject.notes.change(
        "spec.allowedNamespaces",
        format!("admits {names}, {why}: ours are for their own namespace unless they say so"),
    );
    let labels = json!({ "matchExpressions": [{ "key": NAME, "operator": "In", "values": users }] });
    ours.insert("allowedNamespaces".to_owned(), json!({ "from": "Selector", "selector": labels }));
}

/// Returns the other namespaces than `home` with an object of kagent that is a user.
fn namespaces(world: &World<'_>, home: &str, is_user: impl Fn(&ObjectId, &Value) -> bool) -> BTreeSet<String> {
    world
        .objects()
        .map(|object| (ObjectId::of(&object.value), &object.value))
        .filter(|(id, object)| {
            let is_elsewhere = !id.namespace.is_empty() && id.namespace != home;
            is_elsewhere && Source::of(object) == Some(Source::Kagent) && is_user(id, object)
        })
        .map(|(id, _)| id.namespace)
        .collect()
}

/// Reports whether a tool of an agent names an object.
fn uses(agent: &Value, member: &str, here: &str, target: (&str, &str)) -> bool {
    let tools = agent.pointer("/spec/tools").and_then(Value::as_array).into_iter().flatten();
    let mut named = tools.filter_map(|tool| tool.pointer(member)?.as_str());
    named.any(|named| split_reference(named, here) == target)
}

/// Returns the URL of a server that is only an address.
fn url<'o>(kind: &str, object: &'o Value) -> Option<&'o str> {
    let pointers: &[&str] = match kind {
        "RemoteMCPServer" => &["/spec/url"],
        "ToolServer" => &["/spec/config/streamableHttp/url", "/spec/config/sse/url"],
        _ => &[],
    };
    pointers.iter().find_map(|pointer| object.pointer(pointer)?.as_str())
}
