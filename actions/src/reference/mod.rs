//! What the kinds that others refer to share: `accept` judges the spec, `check` waits for what it refers to, `monitor`
//! looks whether that still holds. No finalizer, no children.

mod accept;
#[cfg(test)]
mod chain_tests;
mod check;
mod monitor;
#[cfg(test)]
mod tests;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use crds::{
    HasReferences, RefKind,
    ReferencePhase::{self, Available, Error, Pending, Resolving},
    cycle::Node,
};
use machine::{Action, ActionError, Edge, EdgeFrom, Rule, Table, TableError};

use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    references::{Inputs, Resolver},
};

pub use accept::Accept;
pub use check::CheckReferences;
pub use monitor::Monitor;

/// What a kind that others refer to brings of its own.
pub trait ReferenceKind: ControlledKind<Phase = ReferencePhase> + HasReferences {
    /// Judges what the CRD cannot.
    ///
    /// # Errors
    /// `Terminal`, saying what to change.
    fn validate(&self) -> Result<(), ActionError>;

    /// Why it can never be used as things stand, though everything that it refers to is there.
    fn rejection(&self, _world: &Deps) -> Option<ActionError> {
        None
    }

    /// Puts what its kind says of itself into the status, while it may be used.
    fn report_status(&mut self, _world: &Deps) {}

    /// Looks at everything it refers to. What is there may change without a word from this object: those that use it
    /// look at what stands behind it themselves.
    fn inputs(&self, world: &Deps) -> Inputs {
        let key = self.key();
        let node = RefKind::parse(Self::KIND).map(|kind| Node::new(kind, key.name));
        Resolver::new(world, &key.namespace).inputs(node.as_ref(), &self.references()).by_presence()
    }
}

/// A digest of what others may change that it depends on, for the brake.
pub(crate) fn external_digest<K: ReferenceKind>(cr: &K, world: &Deps) -> u64 {
    let mut digest = DefaultHasher::new();
    cr.inputs(world).pin().hash(&mut digest);
    digest.finish()
}

/// The moves of Tool, Model, Prompt and the others.
pub const EDGES: &[Edge<ReferencePhase>] = &[
    Edge::rule(EdgeFrom::Nothing, Pending, Rule::Admit, "first seen"),
    Edge::new(Pending, Resolving, "accept", "the spec is valid"),
    Edge::new(Pending, Error, "accept", "the spec is invalid"),
    Edge::new(Resolving, Available, "check", "every reference is there"),
    Edge::new(Resolving, Error, "check", "a reference can never be used"),
    Edge::new(Available, Resolving, "monitor", "a reference changed"),
    Edge::new(Error, Resolving, "monitor", "a reference changed, or it is time to try again"),
    Edge::rule(EdgeFrom::In(Pending), Error, Rule::Fail, "failed for good"),
    Edge::rule(EdgeFrom::In(Resolving), Error, Rule::Fail, "failed for good"),
    Edge::rule(EdgeFrom::In(Available), Error, Rule::Fail, "failed for good"),
    Edge::rule(EdgeFrom::Any, Pending, Rule::SpecChanged, "the spec changed"),
];

/// Failures that waiting does not mend.
pub const NOT_RETRYABLE: &[&str] = &["InvalidSpec"];

/// The table of a kind that others refer to. Each kind says its own version of the rendering.
pub const TABLE: Table<ReferencePhase> = Table {
    edges: EDGES,
    render_version: 0,
    not_retryable: NOT_RETRYABLE,
    conditions: &["Available"],
    available_follows_ready: true,
    decision_paths: &["publishedTools"],
};

/// Returns the actions of such a kind with its table.
///
/// # Errors
/// A fault in the table or in the list of actions.
pub fn registry<K: ReferenceKind>() -> Result<Registry<K>, TableError> {
    Registry::new(K::TABLE, actions(), external_digest)
}

/// The actions, in the order in which they are asked.
pub fn actions<K: ReferenceKind>() -> Vec<Arc<dyn Action<K, Deps>>> {
    vec![Arc::new(Accept), Arc::new(CheckReferences), Arc::new(Monitor)]
}
