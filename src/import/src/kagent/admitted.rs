//! Namespaces that use an object of another one. kagent's first API has no `allowedNamespaces`, nor has an MCPServer or a Service, and
//! every namespace uses them; ours admit those of the input.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{FIRST_API, is_first_api, service_host::ServiceHost, split_reference};
use crate::{input::ObjectId, source::Source, subject::Subject, world::World};

/// Label by which Kubernetes names a namespace.
const NAME: &str = "kubernetes.io/metadata.name";
/// Kinds of kagent that list tools.
const AGENTS: [&str; 2] = ["Agent", "SandboxAgent"];

/// Admits the other namespaces of the input whose agents ask an agent of the first API.
pub(super) fn admit_askers(subject: &Subject<'_>, ours: &mut Map<String, Value>) {
    if !is_first_api(subject) {
        return;
    }
    let (home, name) = (subject.namespace(), subject.id.name.as_str());
    let users = users(subject.world, home, |tool, here| {
        let named = tool.pointer("/agent/ref").and_then(Value::as_str);
        named.is_some_and(|named| split_reference(named, here) == (home, name))
    });
    admit(subject, &users, ours);
}

/// Admits the other namespaces of the input whose agents use a server of tools, or whose RemoteMCPServers lead to it.
pub(super) fn admit_users(subject: &Subject<'_>, ours: &mut Map<String, Value>) {
    let (home, name, kind) = (subject.namespace(), subject.id.name.as_str(), subject.id.kind.as_str());
    let mut users = users_of(subject.world, kind, home, name);
    if kind == "MCPServer" {
        users.extend(remote_users(subject.world, home, name));
    }
    admit(subject, &users, ours);
}

/// Returns the other namespaces of the input whose agents use a server of tools of this kind.
pub(super) fn users_of(world: &World<'_>, kind: &str, namespace: &str, name: &str) -> BTreeSet<String> {
    users(world, namespace, |tool, here| server(tool, here) == Some((kind, namespace, name)))
}

/// Returns the choice of namespaces by their names.
pub(super) fn by_name(namespaces: &BTreeSet<String>) -> Value {
    let labels = json!({ "matchExpressions": [{ "key": NAME, "operator": "In", "values": namespaces }] });
    json!({ "from": "Selector", "selector": labels })
}

fn admit(subject: &Subject<'_>, users: &BTreeSet<String>, ours: &mut Map<String, Value>) {
    if users.is_empty() {
        return;
    }
    let names = users.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    subject.notes.change(
        "spec.allowedNamespaces",
        format!("admits {names}, whose agents use it: ours are for their own namespace unless they say so"),
    );
    ours.insert("allowedNamespaces".to_owned(), by_name(users));
}

/// Returns the other namespaces than `home` with an agent that has a tool which `uses` names; it gets the namespace of the agent, too.
fn users(world: &World<'_>, home: &str, uses: impl Fn(&Value, &str) -> bool) -> BTreeSet<String> {
    world
        .objects()
        .map(|object| (ObjectId::of(&object.value), &object.value))
        .filter(|(id, object)| AGENTS.contains(&id.kind.as_str()) && Source::of(object) == Some(Source::Kagent))
        .filter(|(id, _)| !id.namespace.is_empty() && id.namespace != home)
        .filter(|(id, object)| tools(object).any(|tool| uses(tool, &id.namespace)))
        .map(|(id, _)| id.namespace)
        .collect()
}

/// Returns the tools that an agent lists.
fn tools(agent: &Value) -> impl Iterator<Item = &Value> {
    let place = if agent["apiVersion"] == FIRST_API { "/spec/tools" } else { "/spec/declarative/tools" };
    agent.pointer(place).and_then(Value::as_array).into_iter().flatten()
}

/// Returns kind, namespace and name of the server of a tool.
fn server<'t>(tool: &'t Value, here: &'t str) -> Option<(&'t str, &'t str, &'t str)> {
    let part = tool.get("mcpServer")?;
    let text = |key: &str| part.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let older = text("toolServer");
    let (namespace, name) = split_reference(text("name").or(older)?, text("namespace").unwrap_or(here));
    let kind = if older.is_some() { "ToolServer" } else { text("kind").unwrap_or("MCPServer") };
    Some((kind, namespace, name))
}

/// Returns the other namespaces of the input with a RemoteMCPServer whose URL leads to a Service.
fn remote_users(world: &World<'_>, namespace: &str, name: &str) -> Vec<String> {
    let leads_here = |object: &Value| {
        let url = object.pointer("/spec/url").and_then(Value::as_str);
        let service = url.and_then(|url| ServiceHost::of(url, world));
        service.is_some_and(|service| service.namespace == namespace && service.name == name)
    };
    let servers = world.objects().map(|object| (ObjectId::of(&object.value), &object.value));
    servers
        .filter(|(id, object)| id.kind == "RemoteMCPServer" && Source::of(object) == Some(Source::Kagent))
        .filter(|(id, object)| !id.namespace.is_empty() && id.namespace != namespace && leads_here(object))
        .map(|(id, _)| id.namespace)
        .collect()
}
