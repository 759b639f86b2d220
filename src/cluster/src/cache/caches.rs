//! The maps of every kind, as the actions see them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use actions::{
    ports::{CacheReader, CachedChild, ChildKind, ChildRef, WorkloadPod},
    render::kind_label,
};
use crds::{
    Agent, Flow, FlowSet, HasReferences, MCPServer, Model, PluginConfig, Prompt, RefKind, RemoteMCPServer, Tool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use meta::{Key, PhasedObject};

use super::{keys::Keys, pods::PodIndex};
use crate::{ObjectMap, WatchHealth, apply::ChildMaps};

/// The caches that actions read.
pub struct InformerReader {
    kinds: KindCaches,
    children: ChildMaps,
    pods: Arc<PodIndex>,
    namespaces: Arc<ObjectMap<NamespaceState>>,
    terminating: Arc<TerminatingNamespaces>,
    watch_health: Arc<WatchHealth>,
    ingress: Arc<ObjectMap<Option<LabelSelector>>>,
    keys: Keys,
}

impl fmt::Debug for InformerReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerReader").finish_non_exhaustive()
    }
}

/// The maps of our kinds.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct KindCaches {
    pub agents: Arc<ObjectMap<Agent>>,
    pub flows: Arc<ObjectMap<Flow>>,
    pub flow_sets: Arc<ObjectMap<FlowSet>>,
    pub tools: Arc<ObjectMap<Tool>>,
    pub models: Arc<ObjectMap<Model>>,
    pub plugin_configs: Arc<ObjectMap<PluginConfig>>,
    pub prompts: Arc<ObjectMap<Prompt>>,
    pub mcp_servers: Arc<ObjectMap<MCPServer>>,
    pub remote_mcp_servers: Arc<ObjectMap<RemoteMCPServer>>,
}

/// Where the caches of each kind come from.
#[derive(Debug, Default)]
pub struct Caches {
    /// Our kinds.
    pub kinds: KindCaches,
    /// The children of each kind.
    pub children: HashMap<ChildKind, Arc<ObjectMap<CachedChild>>>,
    /// The Pods.
    pub pods: Arc<ObjectMap<WorkloadPod>>,
    /// The namespaces, where they may be watched.
    pub namespaces: Arc<ObjectMap<NamespaceState>>,
    /// Namespaces that are being deleted, as far as that was found out otherwise.
    pub terminating: Arc<TerminatingNamespaces>,
    /// Which Pods NetworkPolicies of others isolate.
    pub ingress: Arc<ObjectMap<Option<LabelSelector>>>,
    /// What callers are vouched for with.
    pub keys: Keys,
}

/// What counts of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceState {
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// Namespaces that are being deleted, for an operator that may not watch namespaces.
#[derive(Debug, Default)]
pub struct TerminatingNamespaces(Mutex<HashSet<String>>);

impl TerminatingNamespaces {
    /// Takes note of whether it is being deleted; whether that is news.
    pub fn set(&self, namespace: &str, going: bool) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if going { names.insert(namespace.to_owned()) } else { names.remove(namespace) }
    }

    /// Whether it is being deleted.
    pub fn contains(&self, namespace: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace)
    }
}

impl InformerReader {
    /// Views of these maps, which watches on this board fill. To be made before the first watch begins.
    pub fn new(maps: &Caches, board: Arc<WatchHealth>) -> Self {
        let pods = Arc::new(PodIndex::default());
        let index = pods.clone();
        maps.pods.subscribe(move |change| index.follow(change));
        Self {
            kinds: maps.kinds.clone(),
            children: maps.children.clone(),
            pods,
            namespaces: maps.namespaces.clone(),
            terminating: maps.terminating.clone(),
            watch_health: board,
            ingress: maps.ingress.clone(),
            keys: maps.keys.clone(),
        }
    }
}

/// Whether an object of the Tool's namespace refers to it.
fn references_tool<K: PhasedObject + HasReferences>(map: &ObjectMap<K>, tool: &Key) -> bool {
    let users = map.keys().into_iter().filter(|key| key.namespace == tool.namespace);
    let mut users = users.filter_map(|key| map.get(&key)).filter(|user| !user.is_deleting());
    users.any(|user| user.references().iter().any(|found| found.kind == RefKind::Tool && found.name == tool.name))
}

impl CacheReader for InformerReader {
    fn agent(&self, namespace: &str, name: &str) -> Option<Arc<Agent>> {
        self.kinds.agents.get(&Key::new(namespace, name))
    }

    fn flow(&self, namespace: &str, name: &str) -> Option<Arc<Flow>> {
        self.kinds.flows.get(&Key::new(namespace, name))
    }

    fn tool(&self, namespace: &str, name: &str) -> Option<Arc<Tool>> {
        self.kinds.tools.get(&Key::new(namespace, name))
    }

    fn model(&self, namespace: &str, name: &str) -> Option<Arc<Model>> {
        self.kinds.models.get(&Key::new(namespace, name))
    }

    fn plugin_config(&self, namespace: &str, name: &str) -> Option<Arc<PluginConfig>> {
        self.kinds.plugin_configs.get(&Key::new(namespace, name))
    }

    fn prompt(&self, namespace: &str, name: &str) -> Option<Arc<Prompt>> {
        self.kinds.prompts.get(&Key::new(namespace, name))
    }

    fn namespace_labels(&self, namespace: &str) -> Option<Arc<BTreeMap<String, String>>> {
        self.namespaces.get(&Key::new("", namespace)).map(|seen| seen.labels.clone())
    }

    fn is_defined(&self, kind: RefKind) -> bool {
        self.watch_health.is_defined(kind.as_str())
    }

    fn is_namespace_going(&self, namespace: &str) -> bool {
        let seen = self.namespaces.get(&Key::new("", namespace));
        seen.is_some_and(|seen| seen.deleting) || self.terminating.contains(namespace)
    }

    fn published_tools(&self, kind: &'static str, namespace: &str, server: &str) -> Vec<Arc<Tool>> {
        let label = kind_label(kind);
        let tools = self.kinds.tools.keys().into_iter().filter(|key| key.namespace == namespace);
        let tools = tools.filter_map(|key| self.kinds.tools.get(&key));
        let is_its = |tool: &Arc<Tool>| {
            let labels = tool.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(&label)).is_some_and(|name| name == server)
        };
        tools.filter(is_its).collect()
    }

    fn is_tool_used(&self, namespace: &str, name: &str) -> bool {
        let tool = Key::new(namespace, name);
        references_tool(&self.kinds.agents, &tool)
            || references_tool(&self.kinds.flows, &tool)
            || references_tool(&self.kinds.flow_sets, &tool)
    }

    fn mcp_server(&self, namespace: &str, name: &str) -> Option<Arc<MCPServer>> {
        self.kinds.mcp_servers.get(&Key::new(namespace, name))
    }

    fn remote_mcp_server(&self, namespace: &str, name: &str) -> Option<Arc<RemoteMCPServer>> {
        self.kinds.remote_mcp_servers.get(&Key::new(namespace, name))
    }

    fn child(&self, child: &ChildRef) -> Option<Arc<CachedChild>> {
        self.children.get(&child.kind)?.get(&Key::new(&child.namespace, &child.name))
    }

    fn is_ingress_governed(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let policies = self.ingress.keys().into_iter().filter(|key| key.namespace == namespace);
        let mut selectors = policies.filter_map(|key| self.ingress.get(&key)?.as_ref().clone());
        // One that cannot be read may select them.
        let spares = |selector: LabelSelector| Selector::try_from(selector).is_ok_and(|it| !it.matches(labels));
        !selectors.all(spares)
    }

    fn caller_keys(&self) -> Option<String> {
        self.keys.get().map(|keys| keys.public())
    }

    fn children(&self, namespace: &str, owner: &str) -> Vec<Arc<CachedChild>> {
        let is_its = |key: &Key, child: &CachedChild| {
            key.namespace == namespace && child.controller.as_ref().is_some_and(|controller| controller.uid == owner)
        };
        let mut children: Vec<_> = self.children.values().flat_map(|map| map.matching(is_its)).collect();
        children.sort_by(|one, other| one.child.cmp(&other.child));
        children
    }

    fn pods(&self, kind: &'static str, namespace: &str, name: &str) -> Vec<Arc<WorkloadPod>> {
        self.pods.of(kind, Key::new(namespace, name))
    }
}
