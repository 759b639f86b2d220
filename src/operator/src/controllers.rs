//! Makes the controllers of all kinds, and wires what wakes them.

use crate::controlled::ReconciledKind;
use std::sync::Arc;

use cluster::ObjectMap;
use crds::{Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, RemoteMCPServer, Tool, tool::ServerRef};
use machine::TableError;
use meta::Key;

use super::{
    controller::{
        Controller, ControllerContext, controller, trigger_admitted, trigger_on_policy_change, trigger_readers,
    },
    discovery::Discoverer,
    triggers::triggers_itself,
};

/// The controllers of all kinds. To be made before the watches begin, so that they miss no change.
///
/// # Errors
/// A fault in a kind's table of edges or its list of actions.
pub fn controllers(shared: &ControllerContext) -> Result<Arc<[Arc<dyn Controller>]>, TableError> {
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
    trigger_readers(shared);
    trigger_admitted(shared);
    trigger_on_policy_change(shared);
    Ok(controllers.into())
}

/// Lets the servers that are asked for their tools, and the Tools that they publish, wake their objects, and those that are gone be
/// forgotten.
pub(super) fn trigger_discovered(shared: &ControllerContext, discoverer: &Arc<Discoverer>) {
    let users = shared.referrer_queues.clone();
    discoverer.on_change(move |kind, key| users.add(kind, key));
    let users = shared.referrer_queues.clone();
    shared.maps.caches.kinds.tools.subscribe(move |change| {
        if triggers_itself(change) {
            let tools = change.old.iter().chain(&change.new);
            let owners = tools.flat_map(|tool| tool.metadata.owner_references.iter().flatten());
            for owner in owners.filter(|owner| owner.controller == Some(true)) {
                let kind = ServerRef::KINDS.iter().find(|kind| **kind == owner.kind);
                kind.into_iter().for_each(|kind| users.add(kind, &Key::new(&change.key.namespace, &owner.name)));
            }
        }
    });
    forget_gone(&shared.maps.caches.kinds.remote_mcp_servers, discoverer);
    forget_gone(&shared.maps.caches.kinds.mcp_servers, discoverer);
}

fn forget_gone<K: ReconciledKind>(map: &ObjectMap<K>, discoverer: &Arc<Discoverer>) {
    let discoverer = discoverer.clone();
    map.subscribe(move |change| {
        if change.new.is_none() {
            discoverer.forget(K::KIND, &change.key);
        }
    });
}
