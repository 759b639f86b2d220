//! The maps of every kind, as the actions see them.

use std::{collections::HashMap, fmt, sync::Arc};

use actions::{
    machine::Key,
    ports::{Child, ChildKind, ChildRef, Pod, Views},
};
use crds::{Agent, Flow, FlowSet, Model, PluginConfig, Prompt, RemoteMCPServer, Tool};

use super::pods::PodIndex;
use crate::cluster::{ObjectMap, apply::ChildMaps};

/// The caches that actions read.
pub struct Caches {
    kinds: CustomMaps,
    children: ChildMaps,
    pods: Arc<PodIndex>,
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches").finish_non_exhaustive()
    }
}

/// The maps of our kinds.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct CustomMaps {
    pub agents: Arc<ObjectMap<Agent>>,
    pub flows: Arc<ObjectMap<Flow>>,
    pub flow_sets: Arc<ObjectMap<FlowSet>>,
    pub tools: Arc<ObjectMap<Tool>>,
    pub models: Arc<ObjectMap<Model>>,
    pub plugin_configs: Arc<ObjectMap<PluginConfig>>,
    pub prompts: Arc<ObjectMap<Prompt>>,
    pub remote_mcp_servers: Arc<ObjectMap<RemoteMCPServer>>,
}

/// Where the caches of each kind come from.
#[derive(Debug, Default)]
pub struct KindViews {
    /// Our kinds.
    pub kinds: CustomMaps,
    /// The children of each kind.
    pub children: HashMap<ChildKind, Arc<ObjectMap<Child>>>,
    /// The Pods.
    pub pods: Arc<ObjectMap<Pod>>,
}

impl Caches {
    /// Views of these maps. To be made before the first watch begins.
    pub fn new(maps: &KindViews) -> Self {
        let pods = Arc::new(PodIndex::default());
        let index = pods.clone();
        maps.pods.subscribe(move |change| index.follow(change));
        Self { kinds: maps.kinds.clone(), children: maps.children.clone(), pods }
    }
}

impl Views for Caches {
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

    fn remote_mcp_server(&self, namespace: &str, name: &str) -> Option<Arc<RemoteMCPServer>> {
        self.kinds.remote_mcp_servers.get(&Key::new(namespace, name))
    }

    fn child(&self, child: &ChildRef) -> Option<Arc<Child>> {
        self.children.get(&child.kind)?.get(&Key::new(&child.namespace, &child.name))
    }

    fn pods(&self, kind: &'static str, namespace: &str, name: &str) -> Vec<Arc<Pod>> {
        self.pods.of(kind, Key::new(namespace, name))
    }
}
