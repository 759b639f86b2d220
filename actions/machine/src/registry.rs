//! Holds the actions of a kind in order, and checks them against the kind's table of edges before the program starts.

use std::{collections::BTreeSet, fmt, sync::Arc};

use meta::{Phase, PhaseClass, PhasedObject};

use super::{Action, Edge, EdgeFrom, EdgeOwner, Table};

/// Actions of a kind, in the order in which they are asked, with the table of the kind.
///
/// # Example
///
/// ```
/// # use std::sync::Arc;
/// use machine::{Edge, Registry, Table, TableError, example::{Lamp, LampPhase, PowerSupply, Switch, TABLE}};
///
/// let check = |edges| {
///     let table = Table { edges, ..TABLE };
///     Registry::<Lamp, PowerSupply>::new(table, vec![Arc::new(Switch)], |_, power| power.is_on().into())
/// };
/// assert!(check(TABLE.edges).is_ok());
///
/// const MISSPELT: &[Edge<LampPhase>] = &[Edge::new(LampPhase::Pending, LampPhase::Lit, "swich", "it has power")];
/// assert!(matches!(check(MISSPELT), Err(TableError::UnknownAction { action: "swich", .. })));
/// ```
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

/// Defect in a kind's table or list of actions. The program must not start with one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No action claims the phase: an object in it would never move again, unnoticed.
    #[error("{kind}: no action claims the phase {phase}")]
    Unclaimed {
        /// Kind.
        kind: &'static str,
        /// Phase.
        phase: &'static str,
    },
    /// Two actions have the same name: traces and edges could not tell them apart.
    #[error("{kind}: the action {action} is listed twice")]
    ListedTwice {
        /// Kind.
        kind: &'static str,
        /// Action.
        action: &'static str,
    },
    /// No path of edges leads to the phase from a new object.
    #[error("{kind}: no edge leads to the phase {phase}")]
    Unreachable {
        /// Kind.
        kind: &'static str,
        /// Phase.
        phase: &'static str,
    },
    /// No edge leads out of the phase, and it is not a final one (Terminating).
    #[error("{kind}: no edge leads out of the phase {phase}")]
    Trap {
        /// Kind.
        kind: &'static str,
        /// Phase.
        phase: &'static str,
    },
    /// An edge names an action that is not in the list, or that does not claim the edge's phase.
    #[error("{kind}: an edge from {from} names the action {action}, which does not claim that phase")]
    UnknownAction {
        /// Kind.
        kind: &'static str,
        /// Phase from which the edge starts.
        from: String,
        /// Action.
        action: &'static str,
    },
}

impl<K: PhasedObject, D> Registry<K, D> {
    /// Checks the actions against the edges of the table. `outside` returns a digest of the dependencies of an object that other
    /// clients may change: its references, and children that have drifted.
    ///
    /// # Errors
    /// The first defect found.
    pub fn new(
        table: Table<K::Phase>,
        actions: Vec<Arc<dyn Action<K, D>>>,
        outside: fn(&K, &D) -> u64,
    ) -> Result<Self, TableError> {
        let registry = Self { actions, table, dependency_digest: outside };
        registry.check()?;
        Ok(registry)
    }

    /// Returns the first action that handles the object, and the names of those that claim its phase but declined.
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
