//! Holds the operator's RoleBinding, by a finalizer, for as long as an object of its namespace has one. For an operator of some namespaces.
//!
//! A namespace that is being deleted would otherwise often lose the right before the objects that need it, and hang. A user who deletes the
//! RoleBinding alone means to revoke the right: the finalizer is removed at once.

use std::{fmt, sync::Arc, time::Duration};

use cluster::{
    ObjectMap, Watch, WatchHealth, Watches,
    binding::{self, Binding, Bindings},
    cache::{KindCaches, TerminatingNamespaces},
};
use crds::{Agent, Flow, FlowSet, MCPServer};
use machine::ApiError;
use meta::{Key, PhasedObject};
use tokio::{sync::Notify, task::JoinSet, time::timeout};

use super::{
    controlled::ReconciledKind,
    controller::{ControllerContext, ReferrerQueues},
};

/// Delay before a retry, after a refusal or after a change by another client.
const RETRY: Duration = Duration::from_secs(5);
/// Interval of the checks without any change: from the caches, without a request.
const RECHECK: Duration = Duration::from_secs(30);

/// Controller of the RoleBindings of the operator's namespaces.
pub(super) struct BindingController {
    namespaces: Vec<String>,
    bindings: Bindings,
    kinds: KindCaches,
    terminating: Arc<TerminatingNamespaces>,
    referrer_queues: Arc<ReferrerQueues>,
    changed: Arc<Notify>,
    watch_health: Arc<WatchHealth>,
}

impl fmt::Debug for BindingController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindingController").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

/// Kinds with our finalizer.
const FINALIZED_KINDS: [&str; 4] = ["Agent", "Flow", "FlowSet", "MCPServer"];

/// Next action on a RoleBinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FinalizerAction {
    Nothing,
    AddFinalizer,
    RemoveFinalizer,
    /// It is being deleted: the state of its namespace decides.
    CheckNamespace,
}

/// Returns the next action. `going` is whether the namespace is being deleted, if that was queried.
fn next_action(binding: &Binding, has_objects: bool, going: Option<bool>) -> FinalizerAction {
    match (binding.has_finalizer(), binding.deleting) {
        (false, false) if has_objects => FinalizerAction::AddFinalizer,
        (true, false) if !has_objects => FinalizerAction::RemoveFinalizer,
        (false, _) | (true, false) => FinalizerAction::Nothing,
        (true, true) => match going {
            _ if !has_objects => FinalizerAction::RemoveFinalizer,
            None => FinalizerAction::CheckNamespace,
            Some(true) => FinalizerAction::Nothing,
            Some(false) => FinalizerAction::RemoveFinalizer,
        },
    }
}

impl BindingController {
    /// Creates the controller, subscribed to the objects and RoleBindings of these namespaces. Must be called before the watches start.
    pub(super) fn new(shared: &ControllerContext, watches: &Watches, tasks: &mut JoinSet<()>) -> Self {
        let (changed, map) = (Arc::new(Notify::new()), Arc::new(ObjectMap::default()));
        let kinds = shared.maps.caches.kinds.clone();
        watch_finalizers::<Agent>(&kinds, &changed);
        watch_finalizers::<Flow>(&kinds, &changed);
        watch_finalizers::<FlowSet>(&kinds, &changed);
        watch_finalizers::<MCPServer>(&kinds, &changed);
        let news = changed.clone();
        map.subscribe(move |_| news.notify_one());
        // State of its own: an operator that may not watch RoleBindings does without them, and is ready all the same.
        let unwatched = Arc::new(WatchHealth::default());
        for namespace in &watches.namespaces {
            let (source, transport) = (binding::source(), watches.transport.clone());
            let watch = Watch::new(source, Some(namespace.clone()), transport, map.clone(), unwatched.clone());
            tasks.spawn(watch.run());
        }
        let (users, going) = (shared.referrer_queues.clone(), shared.maps.caches.terminating.clone());
        let bindings = Bindings::new(watches.transport.clone(), map);
        let board = watches.watch_health.clone();
        Self {
            namespaces: watches.namespaces.clone(),
            bindings,
            kinds,
            terminating: going,
            referrer_queues: users,
            changed,
            watch_health: board,
        }
    }

    /// Adds and removes the finalizers, for as long as this future is polled.
    pub(super) async fn run(&self) {
        loop {
            let mut again = false;
            for namespace in &self.namespaces {
                match self.reconcile(namespace).await {
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
                // A list that completes later sends no notification.
                let _ = timeout(RECHECK, self.changed.notified()).await;
            }
        }
    }

    /// Reconciles the RoleBinding of a namespace, and reports whether all is done that can be done at this moment.
    async fn reconcile(&self, namespace: &str) -> Result<bool, ApiError> {
        let Some(binding) = self.bindings.get(namespace) else { return Ok(true) };
        // Objects that were never listed may exist.
        if FINALIZED_KINDS.iter().any(|kind| self.watch_health.unlisted(kind, namespace).is_some()) {
            return Ok(true);
        }
        if !binding.deleting {
            self.terminating.set(namespace, false);
        }
        let objects = self.finalized_objects(namespace);
        let mut next = next_action(&binding, !objects.is_empty(), self.terminating.contains(namespace).then_some(true));
        if next == FinalizerAction::CheckNamespace {
            let going = self.bindings.is_namespace_terminating(namespace).await?;
            if going && self.terminating.set(namespace, true) {
                tracing::info!(namespace, objects = objects.len(), "the namespace is being deleted: its objects go");
                objects.iter().for_each(|(kind, key)| self.referrer_queues.add(kind, key));
            }
            next = next_action(&binding, !objects.is_empty(), Some(going));
        }
        let written = match next {
            FinalizerAction::Nothing | FinalizerAction::CheckNamespace => Ok(()),
            FinalizerAction::AddFinalizer => self.bindings.set_finalizer(namespace, &binding, true).await,
            FinalizerAction::RemoveFinalizer => self.bindings.set_finalizer(namespace, &binding, false).await,
        };
        match written {
            // Another version of it is on its way here.
            Err(ApiError::Stale | ApiError::NotFound) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Returns the objects of a namespace that have our finalizer.
    fn finalized_objects(&self, namespace: &str) -> Vec<(&'static str, Key)> {
        let mut found = Vec::new();
        collect_finalized::<Agent>(&self.kinds, namespace, &mut found);
        collect_finalized::<Flow>(&self.kinds, namespace, &mut found);
        collect_finalized::<FlowSet>(&self.kinds, namespace, &mut found);
        collect_finalized::<MCPServer>(&self.kinds, namespace, &mut found);
        found
    }
}

/// Notifies of objects that are created or deleted, or that get or lose our finalizer.
fn watch_finalizers<K: ReconciledKind>(kinds: &KindCaches, changed: &Arc<Notify>) {
    let changed = changed.clone();
    K::map(kinds).subscribe(move |change| {
        let held = |object: &Option<Arc<K>>| object.as_ref().map(|object| object.has_finalizer());
        if held(&change.old) != held(&change.new) {
            changed.notify_one();
        }
    });
}

fn collect_finalized<K: ReconciledKind>(kinds: &KindCaches, namespace: &str, found: &mut Vec<(&'static str, Key)>) {
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
            (false, false, true, None, FinalizerAction::AddFinalizer),
            (false, false, false, None, FinalizerAction::Nothing),
            (true, false, true, None, FinalizerAction::Nothing),
            (true, false, false, None, FinalizerAction::RemoveFinalizer),
            (true, true, true, None, FinalizerAction::CheckNamespace),
            (true, true, true, Some(true), FinalizerAction::Nothing),
            (true, true, true, Some(false), FinalizerAction::RemoveFinalizer),
            (true, true, false, Some(true), FinalizerAction::RemoveFinalizer),
            (false, true, true, None, FinalizerAction::Nothing),
        ] {
            let found = next_action(&binding(held, deleting), objects, going);
            assert_eq!(found, expected, "held {held}, deleting {deleting}, objects {objects}, going {going:?}");
        }
    }
}
