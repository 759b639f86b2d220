//! Step of the driver as far as it is decided: what plan, commit and report read.

use std::{sync::Arc, time::Duration};

use meta::{Key, PhasedObject};

use super::{EdgeOwner, EventText, Table, Wait};

/// One step: the object it is based on, the action or rule that decides, and the result.
pub(super) struct StepDecision<'a, K: PhasedObject> {
    pub(super) key: &'a Key,
    pub(super) cr: Arc<K>,
    pub(super) owner: EdgeOwner,
    pub(super) passed_over: Vec<&'static str>,
    /// Notes of the action.
    pub(super) wait: Option<Wait>,
    pub(super) reason: Option<String>,
    pub(super) facts: String,
    /// Event that the action asks for.
    pub(super) event: Option<EventText>,
    /// Delay after which the action asks for the next step without a watch event.
    pub(super) recheck: Option<Duration>,
    /// True if the object changes phase once too often without an outside change.
    pub(super) backed_off: bool,
    pub(super) took: Duration,
}

impl<'a, K: PhasedObject> StepDecision<'a, K> {
    /// Creates a step for which no action is picked yet, and which changes nothing.
    pub(super) fn new(key: &'a Key, cr: Arc<K>) -> Self {
        Self {
            key,
            cr,
            owner: EdgeOwner::Action(""),
            passed_over: Vec::new(),
            wait: None,
            reason: None,
            facts: String::new(),
            event: None,
            recheck: None,
            backed_off: false,
            took: Duration::ZERO,
        }
    }

    /// Returns the reason of a transition or wait: the action's text, else the edge's.
    pub(super) fn reason_for(&self, table: &Table<K::Phase>, next: &K) -> String {
        if let Some(because) = &self.reason {
            return because.clone();
        }
        let from = self.cr.phase();
        let edge = next
            .phase()
            .filter(|to| Some(*to) != from)
            .and_then(|to| table.edges.iter().find(|edge| edge.allows(from, to, self.owner)));
        match (edge, &self.wait) {
            (Some(edge), _) => edge.why.to_owned(),
            (None, Some(wait)) => wait.message.clone(),
            (None, None) => String::new(),
        }
    }
}
