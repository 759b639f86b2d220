//! `RemoteMCPServer` kind: a server whose tools are discovered. It is Available while it lists its tools and in Error while it
//! does not; the last known tools stay.

mod check;
mod cross_namespace;
mod monitor;
mod target;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crds::{
    HasReferences, Reference,
    ReferencePhase::{self, Available, Error, Pending, Resolving},
    RemoteMCPServer, reason,
};
use machine::{Action, ActionError, Edge, EdgeFrom, Rule, Table, TableError};
use meta::condition_type;

use crate::{
    deps::Deps,
    discovery::Unpublishing,
    kind::{ControlledKind, Registry},
    ports::ChildKind,
    reference::{self, Accept, ReferenceKind},
    references::{Evaluation, Query, Referable, Usage},
};

/// Phase transitions of a RemoteMCPServer.
pub const EDGES: &[Edge<ReferencePhase>] = &[
    Edge::rule(EdgeFrom::Nothing, Pending, Rule::Admit, "first seen"),
    Edge::new(Pending, Resolving, "accept", "the spec is valid"),
    Edge::new(Pending, Error, "accept", "the spec is invalid"),
    Edge::new(Resolving, Available, "check", "the server listed its tools"),
    Edge::new(Resolving, Error, "check", "the server does not list its tools"),
    Edge::new(Available, Resolving, "monitor", "a Secret or ConfigMap changed"),
    Edge::new(Available, Error, "monitor", "the server no longer lists its tools"),
    Edge::new(Error, Resolving, "monitor", "the server lists its tools, or a Secret or ConfigMap changed"),
    Edge::rule(EdgeFrom::In(Pending), Error, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Resolving), Error, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Available), Error, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::Any, Pending, Rule::SpecChanged, "the spec changed"),
];

impl ControlledKind for RemoteMCPServer {
    const TABLE: Table<ReferencePhase> = Table {
        render_version: 1,
        edges: EDGES,
        not_retryable: reason::DISCOVERY_FAILURES,
        conditions: &[
            condition_type::AVAILABLE,
            condition_type::TOOLS_DISCOVERED,
            condition_type::TOOLS_PUBLISHED,
            condition_type::DEFINITION_CURRENT,
        ],
        ..reference::TABLE
    };
    const CHILDREN: &'static [ChildKind] = &[ChildKind::ConfigMap];

    fn registry() -> Result<Registry<Self>, TableError> {
        let actions: Vec<Arc<dyn Action<RemoteMCPServer, Deps>>> = vec![
            Arc::new(Accept),
            Arc::new(Unpublishing(check::CheckServer)),
            Arc::new(Unpublishing(monitor::Monitor)),
        ];
        Registry::new(Self::TABLE, actions, reference::external_digest)
    }
}

impl Referable for RemoteMCPServer {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        query.evaluate_server()
    }

    /// Its callers read its headers and authorities themselves.
    fn references_for(&self, usage: Usage) -> Vec<Reference> {
        if usage == Usage::Data { self.references() } else { Vec::new() }
    }
}

impl ReferenceKind for RemoteMCPServer {
    /// Validates by the rules of the CRD, for objects that are older than the rules.
    fn validate(&self) -> Result<(), ActionError> {
        let scheme = self.spec.url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http" | "https") => Ok(()),
            _ => Err(ActionError::terminal(reason::INVALID_SPEC, "spec.url must be an http or https URL")),
        }
    }
}
