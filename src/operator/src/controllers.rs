//! Makes the controllers of all kinds, and wires what wakes them.

use crate::controlled::Controlled;
use std::sync::Arc;

use cluster::ObjectMap;
use crds::{Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, RemoteMCPServer, Tool, tool::ServerRef};
use machine::TableError;
use meta::Key;

use super::{
    controller::{Controller, Shared, controller, wake_admitted, wake_governed, wake_readers},
    discovery::Discoverer,
    wake::wakes_itself,
};

/// The controllers of all kinds. To be made before the watches begin, so that they miss no change.
///
/// # Errors
/// A fault in a kind's table of edges or its list of actions.
pub fn controllers(shared: &Shared) -> Result<Arc<[Arc<dyn Controller>]>, TableError> {
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
