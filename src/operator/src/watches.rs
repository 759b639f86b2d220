//! Says what the operator watches: every kind, and what actions look at besides.

use std::{collections::HashMap, sync::Arc};

use actions::ports::ChildKind;
use cluster::{
    Board, Head, ObjectMap, Source, Transport, Watch,
    cache::{CustomMaps, KindViews, NamespaceSeen},
    custom::Custom,
    decode, endpoints, pod, policy,
    resource::Resource,
};
use crds::{Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, RemoteMCPServer, Tool};
use tokio::task::JoinSet;

use crate::scaler::GatewayMap;

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
