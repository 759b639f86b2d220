//! `RemoteMCPServer`: its tools are discovered. It is Available while it tells them, and Error while it does not; what it last
//! told stays.

mod check;
mod cross_namespace;
mod monitor;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crds::{
    HasReferences,
    ReferencePhase::{self, Available, Error, Pending, Resolving},
    RemoteMCPServer,
};
use machine::{Action, ActionError, Edge, EdgeFrom, Rule, Table, TableError};
use meta::PhasedObject;

use crate::{
    deps::Deps,
    discovery::{self, DISCOVERED, DiscoveryTarget, PUBLISHED, Unpublishing},
    kind::{ControlledKind, Registry},
    reference::{self, Accept, ReferenceKind},
    references::Resolver,
};

/// The moves of a RemoteMCPServer.
pub const EDGES: &[Edge<ReferencePhase>] = &[
    Edge::rule(EdgeFrom::Nothing, Pending, Rule::Admit, "first seen"),
    Edge::new(Pending, Resolving, "accept", "the spec is valid"),
    Edge::new(Pending, Error, "accept", "the spec is invalid"),
    Edge::new(Resolving, Available, "check", "the server told its tools"),
    Edge::new(Resolving, Error, "check", "the server does not tell its tools"),
    Edge::new(Available, Resolving, "monitor", "a Secret or ConfigMap changed"),
    Edge::new(Available, Error, "monitor", "the server tells its tools no more"),
    Edge::new(Error, Resolving, "monitor", "the server tells its tools, or what it is asked with changed"),
    Edge::rule(EdgeFrom::In(Pending), Error, Rule::Fail, "failed for good"),
    Edge::rule(EdgeFrom::In(Resolving), Error, Rule::Fail, "failed for good"),
    Edge::rule(EdgeFrom::In(Available), Error, Rule::Fail, "failed for good"),
    Edge::rule(EdgeFrom::Any, Pending, Rule::SpecChanged, "the spec changed"),
];

impl ControlledKind for RemoteMCPServer {
    const TABLE: Table<ReferencePhase> = Table {
        render_version: 1,
        edges: EDGES,
        not_retryable: discovery::REASONS,
        conditions: &["Available", DISCOVERED, PUBLISHED],
        ..reference::TABLE
    };

    fn registry() -> Result<Registry<Self>, TableError> {
        let actions: Vec<Arc<dyn Action<RemoteMCPServer, Deps>>> = vec![
            Arc::new(Accept),
            Arc::new(Unpublishing(check::CheckServer)),
            Arc::new(Unpublishing(monitor::Monitor)),
        ];
        Registry::new(Self::TABLE, actions, reference::external_digest)
    }
}

impl ReferenceKind for RemoteMCPServer {
    /// As the CRD's rules, for an object that is older than them.
    fn validate(&self) -> Result<(), ActionError> {
        let scheme = self.spec.url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http" | "https") => Ok(()),
            _ => Err(ActionError::terminal("InvalidSpec", "spec.url must be an http or https URL")),
        }
    }
}

/// How the server is asked.
fn target(cr: &RemoteMCPServer, world: &Deps) -> DiscoveryTarget {
    let key = cr.key();
    let spec = &cr.spec;
    DiscoveryTarget {
        kind: RemoteMCPServer::KIND,
        uid: cr.uid().to_owned(),
        url: spec.url.clone(),
        headers: spec.headers_from.clone(),
        tls: spec.tls.clone().unwrap_or_default(),
        sse: spec.protocol == "SSE",
        silence: spec.sse_read_timeout(),
        terminates: spec.terminate_on_close,
        timeout: spec.timeout(),
        resync: spec.resync(),
        data: Resolver::new(world, &key.namespace).data(&cr.references()),
        key,
    }
}
