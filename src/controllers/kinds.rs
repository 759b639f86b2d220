//! The table of kinds: for each its actions, its children and what it refers to. A new kind is a row here.

use std::{collections::HashMap, sync::Arc};

use actions::{
    agent,
    machine::{BadTable, Machine, Registry},
    ports::{ChildKind, World},
    tool,
};
use crds::{Agent, RefKind, Tool};
use tokio::task::JoinSet;

use crate::{
    cache::{KindViews, Refers},
    cluster::{Board, Head, ObjectMap, Source, Transport, Watch, custom::Custom, decode, pod, resource::Resource},
};

/// A kind that the operator runs.
pub trait Controlled: Machine<World = World> + Custom + Refers {
    /// Kinds of children it makes.
    const CHILDREN: &'static [ChildKind];
    /// Whether it runs Pods.
    const PODS: bool;
    /// Kinds it may refer to.
    const REFERENCES: &'static [RefKind];

    /// Its actions.
    ///
    /// # Errors
    /// A fault in its table of edges or its list of actions.
    fn registry() -> Result<Registry<Self>, BadTable>;
}

impl Controlled for Agent {
    const CHILDREN: &'static [ChildKind] = ChildKind::ALL;
    const PODS: bool = true;
    const REFERENCES: &'static [RefKind] = &[RefKind::Tool, RefKind::Secret, RefKind::ConfigMap];

    fn registry() -> Result<Registry<Self>, BadTable> {
        agent::registry()
    }
}

impl Controlled for Tool {
    const CHILDREN: &'static [ChildKind] = &[];
    const PODS: bool = false;
    const REFERENCES: &'static [RefKind] = &[];

    fn registry() -> Result<Registry<Self>, BadTable> {
        tool::registry()
    }
}

/// The map of every kind that is watched.
#[derive(Debug)]
pub struct Maps {
    /// The Agents.
    pub agents: Arc<ObjectMap<Agent>>,
    /// Tools, children and Pods, which actions look at.
    pub views: KindViews,
}

impl Default for Maps {
    fn default() -> Self {
        let children: HashMap<_, _> = ChildKind::ALL.iter().map(|kind| (*kind, Arc::default())).collect();
        Self { agents: Arc::default(), views: KindViews { children, ..KindViews::default() } }
    }
}

/// What is watched of the children and Pods: our own, and users' Secrets and ConfigMaps because agents refer to them.
const OURS: Option<&str> = Some("app.kubernetes.io/managed-by=recif-operator");
/// Helm's records are large and nobody refers to them.
const NOT_HELM: Option<&str> = Some("type!=helm.sh/release.v1");

impl Maps {
    /// Begins every watch.
    pub fn watch(&self, scope: &Scope, tasks: &mut JoinSet<()>) {
        scope.watch(custom::<Agent>(), &self.agents, tasks);
        scope.watch(custom::<Tool>(), &self.views.tools, tasks);
        let decode = Arc::new(pod::pod);
        scope.watch(Source { resource: Resource::POD, labels: OURS, fields: None, decode }, &self.views.pods, tasks);
        for (&kind, map) in &self.views.children {
            let (labels, fields) = match kind {
                ChildKind::ServiceAccount | ChildKind::Service | ChildKind::Deployment => (OURS, None),
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

impl Scope {
    fn watch<T: Send + Sync + 'static>(&self, source: Source<T>, map: &Arc<ObjectMap<T>>, tasks: &mut JoinSet<()>) {
        let everywhere = self.namespaces.is_empty().then_some(None);
        for namespace in everywhere.into_iter().chain(self.namespaces.iter().cloned().map(Some)) {
            let (transport, board) = (self.transport.clone(), self.board.clone());
            tasks.spawn(Watch::new(source.clone(), namespace, transport, map.clone(), board).run());
        }
    }
}
