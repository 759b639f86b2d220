//! The actions of a kind in their order, checked against its table of edges before anything runs.

use std::{collections::BTreeSet, fmt, sync::Arc};

use meta::{Phase, PhaseClass, PhasedObject};

use super::{Action, Edge, EdgeFrom, EdgeOwner, Table};

/// A kind's actions, in the order in which they are asked, with its table.
pub struct Registry<K: PhasedObject, D> {
    actions: Vec<Arc<dyn Action<K, D>>>,
    pub(super) table: Table<K::Phase>,
    pub(super) dependency_digest: fn(&K, &D) -> u64,
}

impl<K: PhasedObject, D> fmt::Debug for Registry<K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.actions.iter().map(|action| action.name())).finish()
    }
}

/// A fault in a kind's table or list of actions. The program must not start with one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// An object in this phase would never move again, unseen.
    #[error("{kind}: no action claims the phase {phase}")]
    Unclaimed {
        /// The kind.
        kind: &'static str,
        /// The phase.
        phase: &'static str,
    },
    /// The same name twice: traces and edges could not tell them apart.
    #[error("{kind}: the action {action} is listed twice")]
    ListedTwice {
        /// The kind.
        kind: &'static str,
        /// The action.
        action: &'static str,
    },
    /// No edge leads here from a new object.
    #[error("{kind}: no edge leads to the phase {phase}")]
    Unreachable {
        /// The kind.
        kind: &'static str,
        /// The phase.
        phase: &'static str,
    },
    /// No edge leads out, and the phase is not declared stable.
    #[error("{kind}: no edge leads out of the phase {phase}")]
    Trap {
        /// The kind.
        kind: &'static str,
        /// The phase.
        phase: &'static str,
    },
    /// An edge names an action that is not in the list, or one that does not claim the edge's phase.
    #[error("{kind}: an edge from {from} names the action {action}, which does not claim that phase")]
    UnknownAction {
        /// The kind.
        kind: &'static str,
        /// Where the edge begins.
        from: String,
        /// The action.
        action: &'static str,
    },
}

impl<K: PhasedObject, D> Registry<K, D> {
    /// Checks the actions against the table's edges. `outside` returns a digest of what others may change that an object depends
    /// on: its references, and children that are not as they were applied.
    ///
    /// # Errors
    /// The first fault found.
    pub fn new(
        table: Table<K::Phase>,
        actions: Vec<Arc<dyn Action<K, D>>>,
        outside: fn(&K, &D) -> u64,
    ) -> Result<Self, TableError> {
        let registry = Self { actions, table, dependency_digest: outside };
        registry.check()?;
        Ok(registry)
    }

    /// The first action that takes the object, and the names of those that claim its phase but declined.
    pub(super) fn pick(&self, cr: &K) -> (Option<&dyn Action<K, D>>, Vec<&'static str>) {
        let mut passed_over = Vec::new();
        let Some(phase) = cr.phase() else { return (None, passed_over) };
        for action in self.actions.iter().filter(|action| action.phases().contains(&phase)) {
            if action.can_handle(cr) {
                return (Some(action.as_ref()), passed_over);
            }
            passed_over.push(action.name());
        }
        (None, passed_over)
    }

    fn check(&self) -> Result<(), TableError> {
        let (kind, edges) = (K::KIND, self.table.edges);
        let mut names = BTreeSet::new();
        for action in &self.actions {
            if !names.insert(action.name()) {
                return Err(TableError::ListedTwice { kind, action: action.name() });
            }
        }
        for edge in edges {
            let EdgeOwner::Action(action) = edge.by else { continue };
            let claimed =
                self.actions.iter().find(|found| found.name() == action).is_some_and(|found| match edge.from {
                    EdgeFrom::In(phase) => found.phases().contains(&phase),
                    EdgeFrom::Nothing | EdgeFrom::Any => false,
                });
            if !claimed {
                return Err(TableError::UnknownAction { kind, from: format!("{:?}", edge.from), action });
            }
        }
        for phase in K::Phase::ALL.iter().copied() {
            let name = phase.as_str();
            if !self.actions.iter().any(|action| action.phases().contains(&phase)) {
                return Err(TableError::Unclaimed { kind, phase: name });
            }
            let stable = phase.class() == PhaseClass::Terminating;
            if !stable && !edges.iter().any(|edge| edge.from == EdgeFrom::In(phase)) {
                return Err(TableError::Trap { kind, phase: name });
            }
        }
        let reached = reachable(edges);
        match K::Phase::ALL.iter().find(|phase| !reached.contains(phase)) {
            Some(phase) => Err(TableError::Unreachable { kind, phase: phase.as_str() }),
            None => Ok(()),
        }
    }
}

fn reachable<P: Phase>(edges: &[Edge<P>]) -> BTreeSet<P> {
    let mut reached = BTreeSet::new();
    loop {
        let before = reached.len();
        for edge in edges {
            let begins = match edge.from {
                EdgeFrom::Nothing => true,
                EdgeFrom::Any => !reached.is_empty(),
                EdgeFrom::In(phase) => reached.contains(&phase),
            };
            if begins {
                reached.insert(edge.to);
            }
        }
        if reached.len() == before {
            return reached;
        }
    }
}
