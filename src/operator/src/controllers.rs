//! Creates the controllers of all kinds, and subscribes them to the changes that enqueue objects.

use crate::controlled::ReconciledKind;
use std::sync::Arc;

use cluster::ObjectMap;
use crds::{MCPServer, RemoteMCPServer, Tool, tool::ServerRef};
use machine::TableError;
use meta::Key;

use super::{
    controller::{
        Controller, ControllerContext, controller, trigger_admitted, trigger_on_policy_change, trigger_readers,
    },
    discovery::Discoverer,
    triggers::triggers_itself,
};

macro_rules! controllers {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        /// Creates the controllers of all kinds. Must be called before the watches start, so that they miss no change.
        ///
        /// # Errors
        /// A fault in a kind's table of edges or its list of actions.
        pub fn controllers(shared: &ControllerContext) -> Result<Arc<[Arc<dyn Controller>]>, TableError> {
            let controllers = vec![$(controller::<crds::$module::$kind>(shared)?,)+];
            trigger_readers(shared);
            trigger_admitted(shared);
            trigger_on_policy_change(shared);
            Ok(controllers.into())
        }
    };
}
crds::for_each_kind!(controllers);

/// Subscribes to MCP servers: new discovery results, and changes of the Tools that a server publishes, enqueue its object. The server of a
/// deleted object is forgotten.
pub(super) fn trigger_discovered(shared: &ControllerContext, discoverer: &Arc<Discoverer>) {
    let users = shared.referrer_queues.clone();
    discoverer.on_change(move |kind, key| users.add(kind, key));
    let users = shared.referrer_queues.clone();
    shared.maps.caches.kinds.of::<Tool>().subscribe(move |change| {
        if triggers_itself(change) {
            let tools = change.old.iter().chain(&change.new);
            let owners = tools.flat_map(|tool| tool.metadata.owner_references.iter().flatten());
            for owner in owners.filter(|owner| owner.controller == Some(true)) {
                let kind = ServerRef::KINDS.iter().find(|kind| **kind == owner.kind);
                kind.into_iter().for_each(|kind| users.add(kind, &Key::new(&change.key.namespace, &owner.name)));
            }
        }
    });
    forget_gone(shared.maps.caches.kinds.of::<RemoteMCPServer>(), discoverer);
    forget_gone(shared.maps.caches.kinds.of::<MCPServer>(), discoverer);
}

fn forget_gone<K: ReconciledKind>(map: &ObjectMap<K>, discoverer: &Arc<Discoverer>) {
    let discoverer = discoverer.clone();
    map.subscribe(move |change| {
        if change.new.is_none() {
            discoverer.forget(K::KIND, &change.key);
        }
    });
}
