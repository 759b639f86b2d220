//! Informer caches of every kind, and the actions' view of them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use actions::{
    ports::{CacheReader, Cached, CachedChild, ChildKind, ChildRef, WorkloadPod},
    render::kind_label,
};
use crds::{Agent, Flow, FlowSet, HasReferences, RefKind, Tool};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use meta::{Key, PhasedObject};

use super::{keys::Keys, pods::PodIndex};
use crate::{ObjectMap, WatchHealth, apply::ChildMaps};

/// View of the informer caches for the actions (their [`CacheReader`]).
pub struct InformerReader {
    kinds: KindCaches,
    children: ChildMaps,
    pods: Arc<PodIndex>,
    namespaces: Arc<ObjectMap<NamespaceState>>,
    terminating: Arc<TerminatingNamespaces>,
    watch_health: Arc<WatchHealth>,
    ingress: Arc<PodSelectors>,
    disruption: Arc<PodSelectors>,
    keys: Keys,
}

impl fmt::Debug for InformerReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerReader").finish_non_exhaustive()
    }
}

macro_rules! kind_caches {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        /// Informer cache of each kind of ours.
        #[derive(Debug, Clone, Default)]
        pub struct KindCaches {
            $($module: Arc<ObjectMap<crds::$module::$kind>>,)+
        }

        $(impl MapOf<crds::$module::$kind> for KindCaches {
            fn map(&self) -> &Arc<ObjectMap<crds::$module::$kind>> {
                &self.$module
            }
        })+
    };
}
crds::for_each_kind!(kind_caches);

/// Holds the informer cache of a kind.
pub trait MapOf<K> {
    /// Returns the cache.
    fn map(&self) -> &Arc<ObjectMap<K>>;
}

impl KindCaches {
    /// Returns the cache of this kind.
    pub fn of<K>(&self) -> &Arc<ObjectMap<K>>
    where
        Self: MapOf<K>,
    {
        self.map()
    }
}

/// Informer caches of all kinds, which the watches fill.
#[derive(Debug, Default)]
pub struct Caches {
    /// Caches of our own kinds.
    pub kinds: KindCaches,
    /// Caches of the children, by kind.
    pub children: HashMap<ChildKind, Arc<ObjectMap<CachedChild>>>,
    /// Cache of the Pods.
    pub pods: Arc<ObjectMap<WorkloadPod>>,
    /// Cache of the namespaces, where they may be watched.
    pub namespaces: Arc<ObjectMap<NamespaceState>>,
    /// Namespaces known to be deleted from another source than a watch.
    pub terminating: Arc<TerminatingNamespaces>,
    /// Pods that NetworkPolicies of other owners isolate.
    pub ingress: Arc<PodSelectors>,
    /// Pods that PodDisruptionBudgets of other owners select.
    pub disruption: Arc<PodSelectors>,
    /// Keys by which gateways vouch for callers.
    pub keys: Keys,
}

/// Selectors of the Pods that policies of other owners are about; `None` for a policy that is about none.
pub type PodSelectors = ObjectMap<Option<LabelSelector>>;

/// State of a namespace, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceState {
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// True while it is being deleted.
    pub deleting: bool,
}

/// Set of namespaces that are being deleted, for an operator that may not watch namespaces.
#[derive(Debug, Default)]
pub struct TerminatingNamespaces(Mutex<HashSet<String>>);

impl TerminatingNamespaces {
    /// Records whether a namespace is being deleted, and reports whether that is a change.
    pub fn set(&self, namespace: &str, going: bool) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if going { names.insert(namespace.to_owned()) } else { names.remove(namespace) }
    }

    /// Reports whether a namespace is being deleted.
    pub fn contains(&self, namespace: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace)
    }
}

impl InformerReader {
    /// Creates a view of these caches, which watches on `board` fill. Must be called before the first watch starts.
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
            disruption: maps.disruption.clone(),
            keys: maps.keys.clone(),
        }
    }
}

/// Reports whether a policy of this namespace selects Pods with these labels.
fn selects_pods(policies: &PodSelectors, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
    let here = policies.keys().into_iter().filter(|key| key.namespace == namespace);
    let mut selectors = here.filter_map(|key| policies.get(&key)?.as_ref().clone());
    // A selector that cannot be parsed may select them.
    let spares = |selector: LabelSelector| Selector::try_from(selector).is_ok_and(|it| !it.matches(labels));
    !selectors.all(spares)
}

/// Reports whether an object of the Tool's namespace refers to the Tool.
fn references_tool<K: PhasedObject + HasReferences>(map: &ObjectMap<K>, tool: &Key) -> bool {
    let users = map.keys().into_iter().filter(|key| key.namespace == tool.namespace);
    let mut users = users.filter_map(|key| map.get(&key)).filter(|user| !user.is_deleting());
    users.any(|user| user.references().iter().any(|found| found.kind == RefKind::Tool && found.name == tool.name))
}

impl<K> Cached<K> for InformerReader
where
    KindCaches: MapOf<K>,
{
    fn cached(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.kinds.of::<K>().get(&Key::new(namespace, name))
    }
}

impl CacheReader for InformerReader {
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
        let tools = self.kinds.of::<Tool>().keys().into_iter().filter(|key| key.namespace == namespace);
        let tools = tools.filter_map(|key| self.kinds.of::<Tool>().get(&key));
        let is_its = |tool: &Arc<Tool>| {
            let labels = tool.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(&label)).is_some_and(|name| name == server)
        };
        tools.filter(is_its).collect()
    }

    fn is_tool_used(&self, namespace: &str, name: &str) -> bool {
        let tool = Key::new(namespace, name);
        references_tool(self.kinds.of::<Agent>(), &tool)
            || references_tool(self.kinds.of::<Flow>(), &tool)
            || references_tool(self.kinds.of::<FlowSet>(), &tool)
    }

    fn child(&self, child: &ChildRef) -> Option<Arc<CachedChild>> {
        self.children.get(&child.kind)?.get(&Key::new(&child.namespace, &child.name))
    }

    fn is_ingress_governed(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        selects_pods(&self.ingress, namespace, labels)
    }

    fn is_disruption_governed(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        selects_pods(&self.disruption, namespace, labels)
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
