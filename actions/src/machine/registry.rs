//! The actions of a kind in their order, checked against its table of edges before anything runs.

use std::{collections::BTreeSet, fmt, sync::Arc};

use crds::{Phase, Standing};

use super::{Action, At, By, Edge, Machine};

/// A kind's actions, in the order in which they are asked.
pub struct Registry<K: Machine>(Vec<Arc<dyn Action<K>>>);

impl<K: Machine> fmt::Debug for Registry<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|action| action.name())).finish()
    }
}

/// A fault in a kind's table or list of actions. The program must not start with one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTable {
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

impl<K: Machine> Registry<K> {
    /// Checks the list against [`Machine::EDGES`].
    ///
    /// # Errors
    /// The first fault found.
    pub fn new(actions: Vec<Arc<dyn Action<K>>>) -> Result<Self, BadTable> {
        Self::over(actions, K::EDGES)
    }

    /// Checks the list against these edges.
    pub(super) fn over(actions: Vec<Arc<dyn Action<K>>>, edges: &[Edge<K::Phase>]) -> Result<Self, BadTable> {
        let registry = Self(actions);
        registry.check(edges)?;
        Ok(registry)
    }

    /// The first action that takes the object, and the names of those that claim its phase but declined.
    pub(super) fn pick(&self, cr: &K) -> (Option<&Arc<dyn Action<K>>>, Vec<&'static str>) {
        let mut passed_over = Vec::new();
        let Some(phase) = cr.phase() else { return (None, passed_over) };
        for action in self.0.iter().filter(|action| action.phases().contains(&phase)) {
            if action.can_handle(cr) {
                return (Some(action), passed_over);
            }
            passed_over.push(action.name());
        }
        (None, passed_over)
    }

    fn check(&self, edges: &[Edge<K::Phase>]) -> Result<(), BadTable> {
        let kind = K::KIND;
        let mut names = BTreeSet::new();
        for action in &self.0 {
            if !names.insert(action.name()) {
                return Err(BadTable::ListedTwice { kind, action: action.name() });
            }
        }
        for edge in edges {
            let By::Action(action) = edge.by else { continue };
            let claimed = self.0.iter().find(|found| found.name() == action).is_some_and(|found| match edge.from {
                At::In(phase) => found.phases().contains(&phase),
                At::Nothing | At::Any => false,
            });
            if !claimed {
                return Err(BadTable::UnknownAction { kind, from: format!("{:?}", edge.from), action });
            }
        }
        for phase in K::Phase::ALL.iter().copied() {
            let name = phase.as_str();
            if !self.0.iter().any(|action| action.phases().contains(&phase)) {
                return Err(BadTable::Unclaimed { kind, phase: name });
            }
            let stable = phase.standing() == Standing::Terminating;
            if !stable && !edges.iter().any(|edge| edge.from == At::In(phase)) {
                return Err(BadTable::Trap { kind, phase: name });
            }
        }
        let reached = reachable(edges);
        match K::Phase::ALL.iter().find(|phase| !reached.contains(phase)) {
            Some(phase) => Err(BadTable::Unreachable { kind, phase: phase.as_str() }),
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
                At::Nothing => true,
                At::Any => !reached.is_empty(),
                At::In(phase) => reached.contains(&phase),
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
