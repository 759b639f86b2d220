//! Says what the operator watches: every kind, and what actions look at besides.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use actions::ports::ChildKind;
use cluster::{
    ObjectVersion, WatchSource, Watches,
    cache::{Caches, KindCaches, NamespaceState},
    custom::Custom,
    decode,
    endpoint_slice::{EndpointSlice, EndpointState},
    pod, policy,
    resource::Resource,
};
use crds::{Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, RemoteMCPServer, Tool};
use tokio::task::JoinSet;

use crate::scaler::GatewayMap;

/// The map of every kind that is watched.
#[derive(Debug)]
pub struct WatchedCaches {
    /// What actions look at.
    pub caches: Caches,
}

impl Default for WatchedCaches {
    fn default() -> Self {
        let children: HashMap<_, _> = ChildKind::ALL.iter().map(|kind| (*kind, Arc::default())).collect();
        Self { caches: Caches { children, ..Caches::default() } }
    }
}

/// What is watched of the children and Pods: our own, and users' Secrets and ConfigMaps because agents refer to them.
const OURS: Option<&str> = Some("app.kubernetes.io/managed-by=recif-operator");
/// NetworkPolicies of others.
const NOT_OURS: Option<&str> = Some("app.kubernetes.io/managed-by!=recif-operator");
/// Helm's records are large and nobody refers to them.
const NOT_HELM: Option<&str> = Some("type!=helm.sh/release.v1");

impl WatchedCaches {
    /// Begins every watch.
    pub fn watch(&self, watches: &Watches, tasks: &mut JoinSet<()>) {
        // All fields, so that a kind more is not forgotten here.
        let kinds = &self.caches.kinds;
        let KindCaches {
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
        watches.watch(custom_source::<Agent>(), agents, tasks);
        watches.watch(custom_source::<Flow>(), flows, tasks);
        watches.watch(custom_source::<FlowSet>(), flow_sets, tasks);
        watches.watch(custom_source::<MCPServer>(), mcp_servers, tasks);
        watches.watch(custom_source::<Tool>(), tools, tasks);
        watches.watch(custom_source::<Model>(), models, tasks);
        watches.watch(custom_source::<PluginConfig>(), plugin_configs, tasks);
        watches.watch(custom_source::<Prompt>(), prompts, tasks);
        watches.watch(custom_source::<RemoteMCPServer>(), remote_mcp_servers, tasks);
        let decode = Arc::new(pod::pod);
        watches.watch(
            WatchSource { resource: Resource::POD, labels: OURS, fields: None, decode },
            &self.caches.pods,
            tasks,
        );
        // Who may watch some namespaces may not watch the namespaces themselves: none of another one is admitted by labels then.
        if watches.namespaces.is_empty() {
            let decode = Arc::new(|_: &ObjectVersion, json: &str| {
                let (labels, deleting) = decode::labels(json)?;
                Ok(NamespaceState { labels: Arc::new(labels), deleting })
            });
            let source = WatchSource { resource: Resource::NAMESPACE, labels: None, fields: None, decode };
            watches.watch(source, &self.caches.namespaces, tasks);
        }
        let decode = Arc::new(|_: &ObjectVersion, json: &str| policy::ingress_selector(json));
        let resource = Resource::child(ChildKind::NetworkPolicy);
        let source = WatchSource { resource, labels: NOT_OURS, fields: None, decode };
        watches.watch(source, &self.caches.ingress, tasks);
        for (&kind, map) in &self.caches.children {
            let (labels, fields) = match kind {
                ChildKind::ServiceAccount
                | ChildKind::Service
                | ChildKind::NetworkPolicy
                | ChildKind::Deployment
                | ChildKind::Tool => (OURS, None),
                ChildKind::Secret => (None, NOT_HELM),
                ChildKind::ConfigMap => (None, None),
            };
            let decode = Arc::new(move |head: &ObjectVersion, json: &str| decode::child(kind, head, json));
            watches.watch(WatchSource { resource: Resource::child(kind), labels, fields, decode }, map, tasks);
        }
    }
}

fn custom_source<K: Custom>() -> WatchSource<K> {
    let decode = Arc::new(|_: &ObjectVersion, json: &str| K::decode(json));
    WatchSource { resource: K::RESOURCE, labels: None, fields: None, decode }
}

/// The Service behind which the gateways tell their demand.
#[derive(Debug, Clone)]
pub struct GatewayService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Begins the watch of the Pods behind that Service, whatever the operator's own namespaces.
pub fn watch_gateways(watches: &Watches, service: GatewayService, map: &Arc<GatewayMap>, tasks: &mut JoinSet<()>) {
    let GatewayService { namespace, name } = service;
    let decode = Arc::new(move |_: &ObjectVersion, json: &str| {
        let slice = EndpointSlice::read(json)?;
        // Their Service publishes Pods that are not ready too: one that is shutting down still holds requests.
        let (Some(_), Some(port)) = (slice.service(&name), slice.first_port()) else { return Ok(Vec::new()) };
        let serving = slice.endpoints().filter(|pod| pod.state >= EndpointState::Leaving);
        Ok(serving.map(|pod| SocketAddr::new(pod.ip, port)).collect())
    });
    let source = WatchSource { resource: Resource::ENDPOINT_SLICE, labels: None, fields: None, decode };
    watches.watch_in(Some(namespace), source, map, tasks);
}
