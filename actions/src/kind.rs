//! Binds the state machine to the kinds: [`ControlledKind`], and the machine's types over [`Deps`].

use machine::{Table, TableError};
use meta::PhasedObject;

use crate::{deps::Deps, ports::ChildKind};

/// Kind that has a state machine.
pub trait ControlledKind: PhasedObject {
    /// Table of edges and further configuration of the driver.
    const TABLE: Table<Self::Phase>;
    /// Kinds of the children it makes.
    const CHILDREN: &'static [ChildKind] = &[];
    /// True if it runs Pods.
    const HAS_PODS: bool = false;

    /// Returns the actions, checked against the edges.
    ///
    /// # Errors
    /// A defect in the table of edges or the list of actions.
    fn registry() -> Result<Registry<Self>, TableError>;
}

/// Ports, clock and notes of one step.
pub type Context = machine::Context<Deps>;

/// Actions of a kind.
pub type Registry<K> = machine::Registry<K, Deps>;

/// Reconciler of the objects of one kind.
pub type Driver<K> = machine::Driver<K, Deps>;
