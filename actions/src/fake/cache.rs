//! Simulates the operator's informer caches: what each watch has delivered, never older than the answers to the operator's own
//! writes.

use std::collections::BTreeMap;

use super::{Obj, ObjectId, Store, store::StoreChange};

/// Watched kinds besides those of Récif.
const OTHERS: [&str; 8] =
    ["Pod", "ServiceAccount", "ConfigMap", "Secret", "Service", "NetworkPolicy", "PodDisruptionBudget", "Deployment"];

/// Informer cache with the answers to own writes that the watches have not delivered yet.
///
/// Invariant: an answer is kept in `own` only until the watch has delivered its version or a later one.
#[derive(Default)]
pub(super) struct Cache {
    objs: BTreeMap<ObjectId, Obj>,
    own: BTreeMap<ObjectId, (u64, Option<Obj>)>,
    /// Number of log events already delivered, by kind.
    seen: BTreeMap<&'static str, usize>,
    begin: usize,
}

impl Cache {
    /// Creates a cache by a list of everything.
    pub(super) fn listed(store: &Store) -> Self {
        Self { objs: store.objs.clone(), begin: store.log.len(), ..Self::default() }
    }

    /// Delivers the new events of the log, except those of lagging kinds, and returns them.
    pub(super) fn deliver(&mut self, log: &[StoreChange], lags: impl Fn(&str) -> bool) -> Vec<StoreChange> {
        let mut delivered = Vec::new();
        let ours = crds::KINDS.iter().map(|kind| kind.name);
        for kind in ours.chain(OTHERS).filter(|kind| !lags(kind)) {
            let seen = self.seen.insert(kind, log.len()).unwrap_or(self.begin);
            delivered.extend(log[seen..].iter().filter(|event| event.id.kind == kind).cloned());
        }
        delivered.sort_by_key(|event| event.rv);
        for event in &delivered {
            match &event.after {
                Some(obj) => drop(self.objs.insert(event.id.clone(), obj.clone())),
                None => drop(self.objs.remove(&event.id)),
            }
            if self.own.get(&event.id).is_some_and(|(rv, _)| *rv <= event.rv) {
                self.own.remove(&event.id);
            }
        }
        delivered
    }

    /// Returns the newer of the delivered object and the answer to an own write.
    pub(super) fn get(&self, id: &ObjectId) -> Option<Obj> {
        match self.own.get(id) {
            Some((_, own)) => own.clone(),
            None => self.objs.get(id).cloned(),
        }
    }

    /// Returns the delivered objects.
    pub(super) fn objs(&self) -> impl Iterator<Item = (&ObjectId, &Obj)> {
        self.objs.iter()
    }

    /// Keeps the answer to an own write until the watch has delivered it.
    pub(super) fn wrote(&mut self, id: &ObjectId, rv: u64, obj: Option<Obj>) {
        if self.objs.get(id).is_none_or(|known| known.rv() < rv) {
            self.own.insert(id.clone(), (rv, obj));
        }
    }
}
