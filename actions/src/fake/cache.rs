//! The operator's caches: what each watch has delivered, never older than the answers to its own writes.

use std::collections::BTreeMap;

use super::{Obj, ObjectId, Store, store::StoreChange};

/// The kinds that are watched.
const KINDS: [&str; 16] = [
    "Agent",
    "Flow",
    "FlowSet",
    "Tool",
    "Model",
    "PluginConfig",
    "Prompt",
    "MCPServer",
    "RemoteMCPServer",
    "Pod",
    "ServiceAccount",
    "ConfigMap",
    "Secret",
    "Service",
    "NetworkPolicy",
    "Deployment",
];

/// What the watches have delivered, and the answers to our own writes that they have not.
#[derive(Default)]
pub(super) struct Cache {
    objs: BTreeMap<ObjectId, Obj>,
    own: BTreeMap<ObjectId, (u64, Option<Obj>)>,
    /// Events of the log already delivered, by kind.
    seen: BTreeMap<&'static str, usize>,
    begin: usize,
}

impl Cache {
    /// Everything is listed.
    pub(super) fn listed(store: &Store) -> Self {
        Self { objs: store.objs.clone(), begin: store.log.len(), ..Self::default() }
    }

    /// Takes in what the log has that is new, but for kinds that lag, and says what that was.
    pub(super) fn deliver(&mut self, log: &[StoreChange], lags: impl Fn(&str) -> bool) -> Vec<StoreChange> {
        let mut delivered = Vec::new();
        for kind in KINDS.into_iter().filter(|kind| !lags(kind)) {
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

    /// The newer of both.
    pub(super) fn get(&self, id: &ObjectId) -> Option<Obj> {
        match self.own.get(id) {
            Some((_, own)) => own.clone(),
            None => self.objs.get(id).cloned(),
        }
    }

    /// What the watches have delivered.
    pub(super) fn objs(&self) -> impl Iterator<Item = (&ObjectId, &Obj)> {
        self.objs.iter()
    }

    /// Remembers the answer to a write of ours until the watch has it.
    pub(super) fn wrote(&mut self, id: &ObjectId, rv: u64, obj: Option<Obj>) {
        if self.objs.get(id).is_none_or(|known| known.rv() < rv) {
            self.own.insert(id.clone(), (rv, obj));
        }
    }
}
