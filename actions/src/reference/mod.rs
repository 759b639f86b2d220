//! Implements the state machine of the kinds that other objects refer to: `accept` validates the spec, `check` waits for the
//! references, `monitor` watches whether they still hold. No finalizer, no children.

mod accept;
mod check;
mod kind;
mod monitor;
#[cfg(test)]
mod tests;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use crds::{
    ReferencePhase::{self, Available, Error, Pending, Resolving},
    reason,
};
use machine::{Action, Edge, EdgeFrom, Rule, Table, TableError};
use meta::condition_type;

use crate::{deps::Deps, kind::Registry};

pub use accept::Accept;
pub use check::CheckReferences;
pub use kind::ReferenceKind;
pub use monitor::Monitor;

/// Returns the digest of the dependencies that other clients may change, for the detection of hot loops.
pub(crate) fn external_digest<K: ReferenceKind>(cr: &K, deps: &Deps) -> u64 {
    let mut digest = DefaultHasher::new();
    cr.inputs(deps).pin().hash(&mut digest);
    digest.finish()
}

/// Edges of Tool, Model, Prompt and the other kinds of this sort.
pub const EDGES: &[Edge<ReferencePhase>] = &[
    Edge::rule(EdgeFrom::Nothing, Pending, Rule::Admit, "first seen"),
    Edge::new(Pending, Resolving, "accept", "the spec is valid"),
    Edge::new(Pending, Error, "accept", "the spec is invalid"),
    Edge::new(Resolving, Available, "check", "every reference is there"),
    Edge::new(Resolving, Error, "check", "a reference can never be used"),
    Edge::new(Available, Resolving, "monitor", "a reference changed"),
    Edge::new(Error, Resolving, "monitor", "a reference changed, or the back-off is over"),
    Edge::rule(EdgeFrom::In(Pending), Error, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Resolving), Error, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Available), Error, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::Any, Pending, Rule::SpecChanged, "the spec changed"),
];

/// Failure reasons that a later retry does not repair.
pub const NOT_RETRYABLE: &[&str] = &[reason::INVALID_SPEC];

/// Configuration of the driver for a kind that other objects refer to. Each kind sets its own `render_version`.
pub const TABLE: Table<ReferencePhase> = Table {
    edges: EDGES,
    render_version: 0,
    not_retryable: NOT_RETRYABLE,
    conditions: &[condition_type::AVAILABLE],
    available_follows_ready: true,
    decision_paths: &["publishedTools"],
};

/// Returns the actions of such a kind with its table.
///
/// # Errors
/// A defect in the table or in the list of actions.
pub fn registry<K: ReferenceKind>() -> Result<Registry<K>, TableError> {
    Registry::new(K::TABLE, actions(), external_digest)
}

/// Returns the actions, in the order in which they are asked.
pub fn actions<K: ReferenceKind>() -> Vec<Arc<dyn Action<K, Deps>>> {
    vec![Arc::new(Accept), Arc::new(CheckReferences), Arc::new(Monitor)]
}
