//! Ties the state machine to the kinds: [`ControlledKind`], and the machine's types over our [`Deps`].

use machine::{Table, TableError};
use meta::PhasedObject;

use crate::deps::Deps;

/// A kind that has a state machine.
pub trait ControlledKind: PhasedObject {
    /// Its edges, and what else the driver asks of it.
    const TABLE: Table<Self::Phase>;

    /// Returns its actions, checked against its edges.
    ///
    /// # Errors
    /// A fault in its table of edges or its list of actions.
    fn registry() -> Result<Registry<Self>, TableError>;
}

/// What a step may use.
pub type Context = machine::Context<Deps>;

/// A kind's actions.
pub type Registry<K> = machine::Registry<K, Deps>;

/// Takes the objects of one kind through their life.
pub type Driver<K> = machine::Driver<K, Deps>;
