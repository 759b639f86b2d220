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
    RefKind,
    ReferencePhase::{self, Available, Error, Pending, Resolving},
    Refers,
    cycle::Node,
};
use machine::{Action, ActionError, At, BadTable, Edge, Rule, Table};

use crate::{
    deps::World,
    kind::{ControlledKind, Registry},
    references::{Inputs, Lookup},
};

pub use accept::Accept;
pub use check::Check;
pub use monitor::Monitor;

/// What a kind that others refer to brings of its own.
pub trait Reference: ControlledKind<Phase = ReferencePhase> + Refers {
    /// Judges what the CRD cannot.
    ///
    /// # Errors
    /// `Terminal`, saying what to change.
    fn validate(&self) -> Result<(), ActionError>;

    /// Why it can never be used as things stand, though everything that it refers to is there.
    fn refused(&self, _world: &World) -> Option<ActionError> {
        None
    }

    /// Puts what its kind says of itself into the status, while it may be used.
    fn tell(&mut self, _world: &World) {}

    /// Looks at everything it refers to. What is there may change without a word from this object: those that use it
    /// look at what stands behind it themselves.
    fn inputs(&self, world: &World) -> Inputs {
        let key = self.key();
        let node = RefKind::parse(Self::KIND).map(|kind| Node::new(kind, key.name));
        Lookup::new(world, &key.namespace).inputs(node.as_ref(), &self.references()).by_presence()
    }
}

/// A digest of what others may change that it depends on, for the brake.
pub(crate) fn outside<K: Reference>(cr: &K, world: &World) -> u64 {
    let mut digest = DefaultHasher::new();
    cr.inputs(world).pin().hash(&mut digest);
    digest.finish()
}

/// The moves of Tool, Model, Prompt and the others.
pub const EDGES: &[Edge<ReferencePhase>] = &[
    Edge::rule(At::Nothing, Pending, Rule::Admit, "first seen"),
    Edge::new(Pending, Resolving, "accept", "the spec is valid"),
    Edge::new(Pending, Error, "accept", "the spec is invalid"),
    Edge::new(Resolving, Available, "check", "every reference is there"),
    Edge::new(Resolving, Error, "check", "a reference can never be used"),
    Edge::new(Available, Resolving, "monitor", "a reference changed"),
    Edge::new(Error, Resolving, "monitor", "a reference changed, or it is time to try again"),
    Edge::rule(At::In(Pending), Error, Rule::Fail, "failed for good"),
    Edge::rule(At::In(Resolving), Error, Rule::Fail, "failed for good"),
    Edge::rule(At::In(Available), Error, Rule::Fail, "failed for good"),
    Edge::rule(At::Any, Pending, Rule::SpecChanged, "the spec changed"),
];

/// Failures that waiting does not mend.
pub const NOT_BY_TIME: &[&str] = &["InvalidSpec"];

/// The table of a kind that others refer to. Each kind says its own version of the rendering.
pub const TABLE: Table<ReferencePhase> = Table {
    edges: EDGES,
    render_version: 0,
    not_by_time: NOT_BY_TIME,
    conditions: &["Available"],
    available_by_phase: true,
    steered_by: &["publishedTools"],
};

/// Returns the actions of such a kind with its table.
///
/// # Errors
/// A fault in the table or in the list of actions.
pub fn registry<K: Reference>() -> Result<Registry<K>, BadTable> {
    Registry::new(K::TABLE, actions(), outside)
}

/// The actions, in the order in which they are asked.
pub fn actions<K: Reference>() -> Vec<Arc<dyn Action<K, World>>> {
    vec![Arc::new(Accept), Arc::new(Check), Arc::new(Monitor)]
}
