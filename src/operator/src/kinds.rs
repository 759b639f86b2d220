//! The table of kinds: for each its actions, its children and what it refers to. A new kind is a row here.

use std::{collections::HashMap, sync::Arc};

use actions::{kind::ControlledKind, ports::ChildKind};
use cluster::{
    Board, Head, ObjectMap, Source, Transport, Watch,
    cache::{CustomMaps, KindViews, NamespaceSeen},
    custom::Custom,
    decode, endpoints, pod, policy,
    resource::Resource,
};
use crds::{
    Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, Refers, RemoteMCPServer, Tool, tool::ServerRef,
};
use machine::BadTable;
use meta::Key;
use tokio::task::JoinSet;

use super::{
    controller::{Controller, Shared, controller, wake_admitted, wake_governed, wake_readers},
    discovery::Discoverer,
    wake::wakes_itself,
};
use crate::scaler::GatewayMap;

/// A kind that the operator runs.
pub trait Controlled: ControlledKind + Custom + Refers {
    /// Kinds of children it makes.
    const CHILDREN: &'static [ChildKind] = &[];
    /// Whether it runs Pods.
    const PODS: bool = false;

    /// Its objects.
    fn map(maps: &CustomMaps) -> &Arc<ObjectMap<Self>>;
}

/// A kind, its objects, and what it makes, if anything.
macro_rules! controlled {
    ($($kind:ident: $map:ident $(, $constant:ident = $value:expr)*;)+) => {$(
        impl Controlled for $kind {
            $(const $constant: controlled!(type $constant) = $value;)*

            fn map(maps: &CustomMaps) -> &Arc<ObjectMap<Self>> {
                &maps.$map
            }
        }
    )+};
    (type CHILDREN) => { &'static [ChildKind] };
    (type PODS) => { bool };
}

controlled! {
    Agent: agents, CHILDREN = ChildKind::ALL, PODS = true;
    Flow: flows, CHILDREN = ChildKind::ALL, PODS = true;
    FlowSet: flow_sets, CHILDREN = ChildKind::ALL, PODS = true;
    MCPServer: mcp_servers, CHILDREN = ChildKind::ALL, PODS = true;
    Tool: tools;
    Model: models;
    PluginConfig: plugin_configs;
    Prompt: prompts;
    RemoteMCPServer: remote_mcp_servers, CHILDREN = &[ChildKind::ConfigMap];
}

/// The controllers of all kinds. To be made before the watches begin, so that they miss no change.
///
/// # Errors
/// A fault in a kind's table of edges or its list of actions.
pub fn controllers(shared: &Shared) -> Result<Arc<[Arc<dyn Controller>]>, BadTable> {
    let controllers = vec![
        controller::<Agent>(shared)?,
        controller::<Flow>(shared)?,
        controller::<FlowSet>(shared)?,
        controller::<MCPServer>(shared)?,
        controller::<Tool>(shared)?,
        controller::<Model>(shared)?,
        controller::<PluginConfig>(shared)?,
        controller::<Prompt>(shared)?,
        controller::<RemoteMCPServer>(shared)?,
    ];
    wake_readers(shared);
    wake_admitted(shared);
    wake_governed(shared);
    Ok(controllers.into())
}

/// Lets the servers that are asked for their tools, and the Tools that they publish, wake their objects, and those that are gone be
/// forgotten.
pub(super) fn wake_asked(shared: &Shared, discoverer: &Arc<Discoverer>) {
    let users = shared.users.clone();
    discoverer.on_news(move |kind, key| users.add(kind, key));
    let users = shared.users.clone();
    shared.maps.views.kinds.tools.subscribe(move |change| {
        if wakes_itself(change) {
            let tools = change.old.iter().chain(&change.new);
            let owners = tools.flat_map(|tool| tool.metadata.owner_references.iter().flatten());
            for owner in owners.filter(|owner| owner.controller == Some(true)) {
                let kind = ServerRef::KINDS.iter().find(|kind| **kind == owner.kind);
                kind.into_iter().for_each(|kind| users.add(kind, &Key::new(&change.key.namespace, &owner.name)));
            }
        }
    });
    forget_gone(&shared.maps.views.kinds.remote_mcp_servers, discoverer);
    forget_gone(&shared.maps.views.kinds.mcp_servers, discoverer);
}

fn forget_gone<K: Controlled>(map: &ObjectMap<K>, discoverer: &Arc<Discoverer>) {
    let discoverer = discoverer.clone();
    map.subscribe(move |change| {
        if change.new.is_none() {
            discoverer.forget(K::KIND, &change.key);
        }
    });
}

/// The map of every kind that is watched.
#[derive(Debug)]
pub struct Maps {
    /// What actions look at.
    pub views: KindViews,
}

impl Default for Maps {
    fn default() -> Self {
        let children: HashMap<_, _> = ChildKind::ALL.iter().map(|kind| (*kind, Arc::default())).collect();
        Self { views: KindViews { children, ..KindViews::default() } }
    }
}

/// What is watched of the children and Pods: our own, and users' Secrets and ConfigMaps because agents refer to them.
const OURS: Option<&str> = Some("app.kubernetes.io/managed-by=recif-operator");
/// NetworkPolicies of others.
const NOT_OURS: Option<&str> = Some("app.kubernetes.io/managed-by!=recif-operator");
/// Helm's records are large and nobody refers to them.
const NOT_HELM: Option<&str> = Some("type!=helm.sh/release.v1");

impl Maps {
    /// Begins every watch.
    pub fn watch(&self, scope: &Scope, tasks: &mut JoinSet<()>) {
        // All fields, so that a kind more is not forgotten here.
        let kinds = &self.views.kinds;
        let CustomMaps {
            agents,
            flows,
            flow_sets,
            mcp_servers,
            tools,
            models,
            plugin_configs,
            prompts,
            remote_mcp_servers,
        } = kinds;
        scope.watch(custom::<Agent>(), agents, tasks);
        scope.watch(custom::<Flow>(), flows, tasks);
        scope.watch(custom::<FlowSet>(), flow_sets, tasks);
        scope.watch(custom::<MCPServer>(), mcp_servers, tasks);
        scope.watch(custom::<Tool>(), tools, tasks);
        scope.watch(custom::<Model>(), models, tasks);
        scope.watch(custom::<PluginConfig>(), plugin_configs, tasks);
        scope.watch(custom::<Prompt>(), prompts, tasks);
        scope.watch(custom::<RemoteMCPServer>(), remote_mcp_servers, tasks);
        let decode = Arc::new(pod::pod);
        scope.watch(Source { resource: Resource::POD, labels: OURS, fields: None, decode }, &self.views.pods, tasks);
        // Who may watch some namespaces may not watch the namespaces themselves: none of another one is admitted by labels then.
        if scope.namespaces.is_empty() {
            let decode = Arc::new(|_: &Head, json: &str| {
                let (labels, deleting) = decode::labels(json)?;
                Ok(NamespaceSeen { labels: Arc::new(labels), deleting })
            });
            let source = Source { resource: Resource::NAMESPACE, labels: None, fields: None, decode };
            scope.watch(source, &self.views.namespaces, tasks);
        }
        let decode = Arc::new(|_: &Head, json: &str| policy::ingress_selector(json));
        let resource = Resource::child(ChildKind::NetworkPolicy);
        let source = Source { resource, labels: NOT_OURS, fields: None, decode };
        scope.watch(source, &self.views.ingress, tasks);
        for (&kind, map) in &self.views.children {
            let (labels, fields) = match kind {
                ChildKind::ServiceAccount
                | ChildKind::Service
                | ChildKind::NetworkPolicy
                | ChildKind::Deployment
                | ChildKind::Tool => (OURS, None),
                ChildKind::Secret => (None, NOT_HELM),
                ChildKind::ConfigMap => (None, None),
            };
            let decode = Arc::new(move |head: &Head, json: &str| decode::child(kind, head, json));
            scope.watch(Source { resource: Resource::child(kind), labels, fields, decode }, map, tasks);
        }
    }
}

fn custom<K: Custom>() -> Source<K> {
    let decode = Arc::new(|_: &Head, json: &str| K::decode(json));
    Source { resource: K::RESOURCE, labels: None, fields: None, decode }
}

/// Where watches look.
#[derive(Debug)]
pub struct Scope {
    /// Namespaces; empty: all.
    pub namespaces: Vec<String>,
    /// What they are opened through.
    pub transport: Arc<Transport>,
    /// Where they say how they are.
    pub board: Arc<Board>,
}

/// The Service behind which the gateways tell their demand.
#[derive(Debug, Clone)]
pub struct GatewayService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Scope {
    /// Begins the watch of who is behind that Service, whatever the operator's own namespaces.
    pub fn watch_gateways(&self, service: GatewayService, map: &Arc<GatewayMap>, tasks: &mut JoinSet<()>) {
        let GatewayService { namespace, name } = service;
        let decode = Arc::new(move |head: &Head, json: &str| endpoints::addresses(&name, head, json));
        let source = Source { resource: Resource::ENDPOINT_SLICE, labels: None, fields: None, decode };
        let (transport, board) = (self.transport.clone(), self.board.clone());
        tasks.spawn(Watch::new(source, Some(namespace), transport, map.clone(), board).run());
    }

    fn watch<T: Send + Sync + 'static>(&self, source: Source<T>, map: &Arc<ObjectMap<T>>, tasks: &mut JoinSet<()>) {
        let everywhere = self.namespaces.is_empty().then_some(None);
        for namespace in everywhere.into_iter().chain(self.namespaces.iter().cloned().map(Some)) {
            let (transport, board) = (self.transport.clone(), self.board.clone());
            tasks.spawn(Watch::new(source.clone(), namespace, transport, map.clone(), board).run());
        }
    }
}
