//! Controller of one kind: its workqueue, its driver, and the subscriptions that enqueue objects.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use actions::{deps::Deps, kind::ControlledKind, ports::ChildKind};
use cluster::{
    CustomObjects, ObjectMap, Transport, WatchHealth,
    cache::{KindCaches, NamespaceState, Referrers},
};
use crds::RefKind;
use futures::future::BoxFuture;
use machine::{ApiError, Clock, Driver, Requeue, Sink, TableError};
use meta::Key;
use tokio::sync::watch;
use tracing::Instrument as _;

use super::{controlled::ReconciledKind, sync_gate::SyncGate, triggers, watches::WatchedCaches, workqueue::Workqueue};

/// Shared context of the controllers of all kinds.
pub struct ControllerContext {
    /// Informer caches that the watches fill.
    pub maps: Arc<WatchedCaches>,
    /// Transport of writes.
    pub transport: Arc<Transport>,
    /// Ports of the actions.
    pub deps: Arc<Deps>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Reverse index of references, with the workqueue of each kind.
    pub referrer_queues: Arc<ReferrerQueues>,
    /// Receivers of the step records.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// Identity of this operator among others: namespace and name of its Lease.
    pub instance: String,
    /// For tests: true if some triggers are dropped.
    pub drop_triggers: bool,
    /// State of the watches.
    pub watch_health: Arc<WatchHealth>,
}

impl fmt::Debug for ControllerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerContext").finish_non_exhaustive()
    }
}

/// Controller of any kind.
pub trait Controller: Send + Sync {
    /// Returns the kind.
    fn kind(&self) -> &'static str;
    /// Returns the number of its objects that wait for a worker.
    fn depth(&self) -> usize;
    /// Returns what its CRD drops of the statuses that this replica wrote, as a sentence; `None` if nothing is known to be dropped.
    fn outdated_crd(&self) -> Option<String>;
    /// Reconciles every object, for as long as this future is polled.
    fn run(&self, workers: usize) -> BoxFuture<'_, ()>;
}

struct KindController<K: ReconciledKind> {
    queue: Arc<Workqueue>,
    driver: Arc<Driver<K, Deps>>,
    map: Arc<ObjectMap<K>>,
    sync_gate: Arc<SyncGate>,
}

/// Requeue delay of an object whose step would read a kind that is still being listed.
const UNSYNCED_RETRY: Duration = Duration::from_secs(1);

impl<K: ReconciledKind> Controller for KindController<K> {
    fn kind(&self) -> &'static str {
        K::KIND
    }

    fn depth(&self) -> usize {
        self.queue.depth()
    }

    fn outdated_crd(&self) -> Option<String> {
        self.driver.dropped_fields()
    }

    fn run(&self, workers: usize) -> BoxFuture<'_, ()> {
        let (driver, sync_gate) = (self.driver.clone(), self.sync_gate.clone());
        let step = move |key: Key| {
            let (driver, sync_gate) = (driver.clone(), sync_gate.clone());
            let span = tracing::info_span!("reconcile", kind = K::KIND, ns = key.namespace, name = key.name);
            let reconcile = async move {
                match sync_gate.unsynced::<K>(&key) {
                    None => driver.reconcile(&key).await,
                    Some(found) if found.refused => driver.report_blocked(&key, ApiError::Forbidden(found.why)).await,
                    Some(_) => Requeue::After(UNSYNCED_RETRY),
                }
            };
            reconcile.instrument(span)
        };
        Box::pin(async move {
            // Inside the future, because a standby creates it and polls it only once it leads.
            self.driver.start_leading();
            self.queue.run(|| self.map.keys(), workers, step).await;
        })
    }
}

/// Creates the controller of a kind. Must be called before the watches start, so that it misses no change.
///
/// # Errors
/// A fault in the kind's table of edges or its list of actions.
pub fn controller<K: ReconciledKind>(shared: &ControllerContext) -> Result<Arc<dyn Controller>, TableError> {
    let queue = Arc::new(if shared.drop_triggers { Workqueue::lossy() } else { Workqueue::default() });
    let map = K::map(&shared.maps.caches.kinds);
    subscribe(shared, map, &queue);
    let objects = Arc::new(CustomObjects::new(shared.transport.clone(), map.clone()));
    let mut driver =
        Driver::new(K::registry()?, shared.deps.clone(), objects, shared.clock.clone(), shared.sinks.clone());
    driver.set_instance(&shared.instance);
    let unknown = Arc::new(SyncGate::new(
        shared.watch_health.clone(),
        shared.maps.caches.kinds.clone(),
        shared.deps.cache.clone(),
    ));
    Ok(Arc::new(KindController { queue, driver: Arc::new(driver), map: map.clone(), sync_gate: unknown }))
}

fn subscribe<K: ReconciledKind>(shared: &ControllerContext, map: &ObjectMap<K>, queue: &Arc<Workqueue>) {
    shared.referrer_queues.add_queue(K::KIND, queue.clone());
    let (own, users) = (queue.clone(), shared.referrer_queues.clone());
    map.subscribe(move |change| {
        users.referrers.follow(change);
        if triggers::triggers_itself(change) {
            own.add(&change.key);
        }
        if let Some(kind) = RefKind::parse(K::KIND)
            && triggers::triggers_referrers(change)
        {
            users.enqueue_referrers(kind, &change.key);
        }
    });
    let caches = &shared.maps.caches;
    for kind in K::CHILDREN {
        let Some(children) = caches.children.get(kind) else { continue };
        let queue = queue.clone();
        children.subscribe(move |change| {
            if triggers::triggers_owner(change) {
                triggers::owners(K::KIND, change).for_each(|owner| queue.add(&owner));
            }
        });
    }
    if K::HAS_PODS {
        let queue = queue.clone();
        caches.pods.subscribe(move |change| {
            if triggers::triggers_workload(change) {
                triggers::workloads(K::KIND, change).for_each(|workload| queue.add(&workload));
            }
        });
    }
}

/// Subscribes to Secrets and ConfigMaps: a change enqueues the objects that read them.
pub(super) fn trigger_readers(shared: &ControllerContext) {
    for (kind, data) in [(RefKind::Secret, ChildKind::Secret), (RefKind::ConfigMap, ChildKind::ConfigMap)] {
        let Some(data) = shared.maps.caches.children.get(&data) else { continue };
        let users = shared.referrer_queues.clone();
        data.subscribe(move |change| {
            if triggers::triggers_readers(change) {
                users.enqueue_referrers(kind, &change.key);
            }
        });
    }
}

/// Subscribes to the labels of namespaces: a change enqueues the objects of the namespace for which they count.
pub(super) fn trigger_admitted(shared: &ControllerContext) {
    let users = shared.referrer_queues.clone();
    shared.maps.caches.namespaces.subscribe(move |change| {
        let labels = |seen: &Option<Arc<NamespaceState>>| seen.as_ref().map(|seen| seen.labels.clone());
        if labels(&change.old) != labels(&change.new) {
            users.enqueue_all(users.referrers.of_namespace(&change.key.name));
        }
    });
}

/// Enqueues every workload when the Secret with the keys of the gateways is read anew or deleted: its Pods may know none of the keys.
pub(super) async fn trigger_on_new_keys(
    mut read: watch::Receiver<bool>,
    maps: Arc<WatchedCaches>,
    users: Arc<ReferrerQueues>,
) {
    while read.changed().await.is_ok() {
        users.enqueue_workloads(&maps.caches.kinds, None);
    }
}

/// Subscribes to NetworkPolicies and PodDisruptionBudgets of other owners: a change enqueues the workloads of the namespace, whose own ones
/// may have to go.
pub(super) fn trigger_on_policy_change(shared: &ControllerContext) {
    let caches = &shared.maps.caches;
    for policies in [&caches.ingress, &caches.disruption] {
        let (users, kinds) = (shared.referrer_queues.clone(), caches.kinds.clone());
        policies.subscribe(move |change| {
            if change.old != change.new {
                users.enqueue_workloads(&kinds, Some(&change.key.namespace));
            }
        });
    }
}

/// Reverse index of references, with the workqueue of each kind.
#[derive(Debug, Default)]
pub struct ReferrerQueues {
    referrers: Referrers,
    queues: Mutex<HashMap<&'static str, Arc<Workqueue>>>,
}

macro_rules! enqueue_workloads {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        impl ReferrerQueues {
            /// Enqueues the objects of every kind that runs Pods, of one namespace or of all.
            fn enqueue_workloads(&self, kinds: &KindCaches, namespace: Option<&str>) {
                $(if <crds::$module::$kind as ControlledKind>::HAS_PODS {
                    let keys = kinds.of::<crds::$module::$kind>().keys().into_iter();
                    let keys = keys.filter(|key| namespace.is_none_or(|namespace| key.namespace == namespace));
                    keys.for_each(|key| self.add(stringify!($kind), &key));
                })+
            }
        }
    };
}
crds::for_each_kind!(enqueue_workloads);

impl ReferrerQueues {
    fn add_queue(&self, kind: &'static str, queue: Arc<Workqueue>) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).insert(kind, queue);
    }

    /// Enqueues one object of this kind.
    pub(super) fn add(&self, kind: &'static str, key: &Key) {
        if let Some(queue) = self.queues.lock().unwrap_or_else(PoisonError::into_inner).get(kind) {
            queue.add(key);
        }
    }

    /// Enqueues all objects that use this one.
    fn enqueue_referrers(&self, kind: RefKind, key: &Key) {
        self.enqueue_all(self.referrers.of(kind, key));
    }

    fn enqueue_all(&self, users: BTreeSet<(&'static str, Key)>) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, user) in users {
            if let Some(queue) = queues.get(kind) {
                queue.add(&user);
            }
        }
    }
}
