//! Keeps the operator's RoleBinding, by a finalizer, for as long as an object of its namespace has one: for an operator that works
//! in some namespaces.
//!
//! A namespace that is being deleted would otherwise often lose the right before the objects that need it, and hang. Who deletes
//! the RoleBinding alone means to take the right away: it is let go at once.

use std::{fmt, sync::Arc, time::Duration};

use cluster::{
    Board, ObjectMap, Watch, Watches,
    binding::{self, Binding, Bindings},
    cache::{CustomMaps, GoingNamespaces},
};
use crds::{Agent, Flow, FlowSet, MCPServer};
use machine::ApiError;
use meta::{Key, PhasedObject};
use tokio::{sync::Notify, task::JoinSet, time::timeout};

use super::{
    controlled::Controlled,
    controller::{Shared, Users},
};

/// How soon it is tried again after a refusal, or after somebody else's change.
const RETRY: Duration = Duration::from_secs(5);
/// How often it is looked at although nothing happened: from the caches, without a request.
const LOOK: Duration = Duration::from_secs(30);

/// The RoleBindings of the operator's namespaces.
pub(super) struct Holder {
    namespaces: Vec<String>,
    bindings: Bindings,
    kinds: CustomMaps,
    going: Arc<GoingNamespaces>,
    users: Arc<Users>,
    changed: Arc<Notify>,
    board: Arc<Board>,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

/// The kinds with our finalizer.
const HELD: [&str; 4] = ["Agent", "Flow", "FlowSet", "MCPServer"];

/// What is to be done about a RoleBinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Nothing,
    Hold,
    LetGo,
    /// It is being deleted: whether its namespace is, decides.
    AskWhy,
}

/// `going`: whether its namespace is being deleted, if that was asked.
fn act(binding: &Binding, has_objects: bool, going: Option<bool>) -> Act {
    match (binding.is_held(), binding.deleting) {
        (false, false) if has_objects => Act::Hold,
        (true, false) if !has_objects => Act::LetGo,
        (false, _) | (true, false) => Act::Nothing,
        (true, true) => match going {
            _ if !has_objects => Act::LetGo,
            None => Act::AskWhy,
            Some(true) => Act::Nothing,
            Some(false) => Act::LetGo,
        },
    }
}

impl Holder {
    /// Follows the objects and RoleBindings of these namespaces. To be made before the watches begin.
    pub(super) fn new(shared: &Shared, watches: &Watches, tasks: &mut JoinSet<()>) -> Self {
        let (changed, map) = (Arc::new(Notify::new()), Arc::new(ObjectMap::default()));
        let kinds = shared.maps.views.kinds.clone();
        notice::<Agent>(&kinds, &changed);
        notice::<Flow>(&kinds, &changed);
        notice::<FlowSet>(&kinds, &changed);
        notice::<MCPServer>(&kinds, &changed);
        let news = changed.clone();
        map.subscribe(move |_| news.notify_one());
        // Of its own: who may not see RoleBindings does without, and is ready all the same.
        let unwatched = Arc::new(Board::default());
        for namespace in &watches.namespaces {
            let (source, transport) = (binding::source(), watches.transport.clone());
            let watch = Watch::new(source, Some(namespace.clone()), transport, map.clone(), unwatched.clone());
            tasks.spawn(watch.run());
        }
        let (users, going) = (shared.users.clone(), shared.maps.views.going.clone());
        let bindings = Bindings::new(watches.transport.clone(), map);
        let board = watches.board.clone();
        Self { namespaces: watches.namespaces.clone(), bindings, kinds, going, users, changed, board }
    }

    /// Holds them and lets them go, for as long as this is polled.
    pub(super) async fn lead(&self) {
        loop {
            let mut again = false;
            for namespace in &self.namespaces {
                match self.keep(namespace).await {
                    Ok(done) => again |= !done,
                    Err(error) => {
                        tracing::warn!(namespace, %error, "the operator's RoleBinding cannot be held or let go");
                        again = true;
                    }
                }
            }
            if again {
                tokio::time::sleep(RETRY).await;
            } else {
                // What is listed only later tells nobody by itself.
                let _ = timeout(LOOK, self.changed.notified()).await;
            }
        }
    }

    /// Whether all is done that can be done now.
    async fn keep(&self, namespace: &str) -> Result<bool, ApiError> {
        let Some(binding) = self.bindings.get(namespace) else { return Ok(true) };
        // Objects that were never listed may be there.
        if HELD.iter().any(|kind| self.board.unlisted(kind, namespace).is_some()) {
            return Ok(true);
        }
        if !binding.deleting {
            self.going.set(namespace, false);
        }
        let objects = self.held_objects(namespace);
        let mut next = act(&binding, !objects.is_empty(), self.going.contains(namespace).then_some(true));
        if next == Act::AskWhy {
            let going = self.bindings.is_namespace_going(namespace).await?;
            if going && self.going.set(namespace, true) {
                tracing::info!(namespace, objects = objects.len(), "the namespace is being deleted: its objects go");
                objects.iter().for_each(|(kind, key)| self.users.add(kind, key));
            }
            next = act(&binding, !objects.is_empty(), Some(going));
        }
        let written = match next {
            Act::Nothing | Act::AskWhy => Ok(()),
            Act::Hold => self.bindings.hold(namespace, &binding, true).await,
            Act::LetGo => self.bindings.hold(namespace, &binding, false).await,
        };
        match written {
            // Another version of it is on its way here.
            Err(ApiError::Stale | ApiError::NotFound) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// The objects of a namespace that have our finalizer.
    fn held_objects(&self, namespace: &str) -> Vec<(&'static str, Key)> {
        let mut found = Vec::new();
        held::<Agent>(&self.kinds, namespace, &mut found);
        held::<Flow>(&self.kinds, namespace, &mut found);
        held::<FlowSet>(&self.kinds, namespace, &mut found);
        held::<MCPServer>(&self.kinds, namespace, &mut found);
        found
    }
}

/// Takes note of objects that come, go, or get or lose our finalizer.
fn notice<K: Controlled>(kinds: &CustomMaps, changed: &Arc<Notify>) {
    let changed = changed.clone();
    K::map(kinds).subscribe(move |change| {
        let held = |object: &Option<Arc<K>>| object.as_ref().map(|object| object.has_finalizer());
        if held(&change.old) != held(&change.new) {
            changed.notify_one();
        }
    });
}

fn held<K: Controlled>(kinds: &CustomMaps, namespace: &str, found: &mut Vec<(&'static str, Key)>) {
    let map = K::map(kinds);
    let keys = map.keys().into_iter().filter(|key| key.namespace == namespace);
    let held = keys.filter(|key| map.get(key).is_some_and(|object| PhasedObject::has_finalizer(object.as_ref())));
    found.extend(held.map(|key| (K::KIND, key)));
}

#[cfg(test)]
mod tests {
    use crds::FINALIZER;

    use super::*;

    #[test]
    fn it_is_held_while_an_object_is_and_goes_after_the_last_or_when_it_is_deleted_alone() {
        let binding = |held: bool, deleting: bool| Binding {
            uid: "u".into(),
            finalizers: held.then(|| FINALIZER.to_owned()).into_iter().collect(),
            deleting,
        };
        for (held, deleting, objects, going, expected) in [
            (false, false, true, None, Act::Hold),
            (false, false, false, None, Act::Nothing),
            (true, false, true, None, Act::Nothing),
            (true, false, false, None, Act::LetGo),
            (true, true, true, None, Act::AskWhy),
            (true, true, true, Some(true), Act::Nothing),
            (true, true, true, Some(false), Act::LetGo),
            (true, true, false, Some(true), Act::LetGo),
            (false, true, true, None, Act::Nothing),
        ] {
            let found = act(&binding(held, deleting), objects, going);
            assert_eq!(found, expected, "held {held}, deleting {deleting}, objects {objects}, going {going:?}");
        }
    }
}
