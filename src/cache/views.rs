//! The maps of every kind, as the actions see them.

use std::{collections::HashMap, fmt, sync::Arc};

use actions::{
    machine::Key,
    ports::{Child, ChildKind, ChildRef, Pod, Views},
};
use crds::Tool;

use super::pods::PodIndex;
use crate::cluster::{ObjectMap, apply::ChildMaps};

/// The caches that actions read.
pub struct Caches {
    tools: Arc<ObjectMap<Tool>>,
    children: ChildMaps,
    pods: Arc<PodIndex>,
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches").finish_non_exhaustive()
    }
}

/// Where the caches of each kind come from.
#[derive(Debug, Default)]
pub struct KindViews {
    /// The Tools.
    pub tools: Arc<ObjectMap<Tool>>,
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
        Self { tools: maps.tools.clone(), children: maps.children.clone(), pods }
    }
}

impl Views for Caches {
    fn tool(&self, namespace: &str, name: &str) -> Option<Arc<Tool>> {
        self.tools.get(&Key::new(namespace, name))
    }

    fn child(&self, child: &ChildRef) -> Option<Arc<Child>> {
        self.children.get(&child.kind)?.get(&Key::new(&child.namespace, &child.name))
    }

    fn pods(&self, kind: &'static str, namespace: &str, name: &str) -> Vec<Arc<Pod>> {
        self.pods.of(kind, Key::new(namespace, name))
    }
}
