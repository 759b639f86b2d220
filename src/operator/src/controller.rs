//! One kind at work: its queue, its driver, and what puts an object into the queue.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use actions::{deps::Deps, ports::ChildKind};
use cluster::{
    CustomObjects, ObjectMap, Transport, WatchHealth,
    cache::{NamespaceState, Referrers},
};
use crds::RefKind;
use futures::future::BoxFuture;
use machine::{ApiError, Clock, Driver, Requeue, Sink, TableError};
use meta::{Key, PhasedObject};
use tokio::sync::watch;

use super::{controlled::ReconciledKind, sync_gate::SyncGate, triggers, watches::WatchedCaches, workqueue::Workqueue};

/// What the controllers of all kinds share.
pub struct ControllerContext {
    /// The maps that the watches fill.
    pub maps: Arc<WatchedCaches>,
    /// What writes go through.
    pub transport: Arc<Transport>,
    /// The ports of the actions.
    pub deps: Arc<Deps>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Who refers to what.
    pub referrer_queues: Arc<ReferrerQueues>,
    /// Where steps are told.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// This operator among others, as namespace and name of its lease.
    pub instance: String,
    /// For tests: whether some wakes are lost.
    pub drop_triggers: bool,
    /// What the watches know.
    pub watch_health: Arc<WatchHealth>,
}

impl fmt::Debug for ControllerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerContext").finish_non_exhaustive()
    }
}

/// A controller, whatever its kind.
pub trait Controller: Send + Sync {
    /// The kind.
    fn kind(&self) -> &'static str;
    /// How many of its objects wait for a worker.
    fn depth(&self) -> usize;
    /// Takes every object through its steps, for as long as this is polled.
    fn run(&self, workers: usize) -> BoxFuture<'_, ()>;
}

struct KindController<K: ReconciledKind> {
    queue: Arc<Workqueue>,
    driver: Arc<Driver<K, Deps>>,
    map: Arc<ObjectMap<K>>,
    sync_gate: Arc<SyncGate>,
}

/// How soon an object is looked at again whose step would read what is on its way.
const UNSYNCED_RETRY: Duration = Duration::from_secs(1);

impl<K: ReconciledKind> Controller for KindController<K> {
    fn kind(&self) -> &'static str {
        K::KIND
    }

    fn depth(&self) -> usize {
        self.queue.depth()
    }

    fn run(&self, workers: usize) -> BoxFuture<'_, ()> {
        let (driver, unknown) = (self.driver.clone(), self.sync_gate.clone());
        let step = move |key| {
            let (driver, unknown) = (driver.clone(), unknown.clone());
            async move {
                match unknown.unsynced::<K>(&key) {
                    None => driver.reconcile(&key).await,
                    Some(found) if found.refused => {
                        driver.report_unreadable(&key, ApiError::Forbidden(found.why)).await
                    }
                    Some(_) => Requeue::After(UNSYNCED_RETRY),
                }
            }
        };
        Box::pin(async move {
            // Not before: a standby makes this future and polls it once it leads.
            self.driver.start_leading();
            self.queue.run(|| self.map.keys(), workers, step).await;
        })
    }
}

/// A controller of the objects of a kind. To be made before the watches begin, so that it misses no change.
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
    let views = &shared.maps.caches;
    for kind in K::CHILDREN {
        let Some(children) = views.children.get(kind) else { continue };
        let queue = queue.clone();
        children.subscribe(move |change| {
            if triggers::triggers_owner(change) {
                triggers::owners(K::KIND, change).for_each(|owner| queue.add(&owner));
            }
        });
    }
    if K::PODS {
        let queue = queue.clone();
        views.pods.subscribe(move |change| {
            if triggers::triggers_workload(change) {
                triggers::workloads(K::KIND, change).for_each(|workload| queue.add(&workload));
            }
        });
    }
}

/// Lets Secrets and ConfigMaps wake whoever reads them.
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

/// Lets the labels of a namespace wake those of its objects for which they count.
pub(super) fn trigger_admitted(shared: &ControllerContext) {
    let users = shared.referrer_queues.clone();
    shared.maps.caches.namespaces.subscribe(move |change| {
        let labels = |seen: &Option<Arc<NamespaceState>>| seen.as_ref().map(|seen| seen.labels.clone());
        if labels(&change.old) != labels(&change.new) {
            users.enqueue_all(users.referrers.of_namespace(&change.key.name));
        }
    });
}

/// Wakes every workload when the keys of the gateways are others: their Pods may know none of them.
pub(super) async fn trigger_on_new_keys(
    mut read: watch::Receiver<bool>,
    maps: Arc<WatchedCaches>,
    users: Arc<ReferrerQueues>,
) {
    let kinds = &maps.caches.kinds;
    while read.changed().await.is_ok() {
        users.add_all(&kinds.agents);
        users.add_all(&kinds.flows);
        users.add_all(&kinds.flow_sets);
        users.add_all(&kinds.mcp_servers);
    }
}

/// Wakes the workloads of a namespace whose NetworkPolicies somebody changed: theirs may have to go.
pub(super) fn trigger_on_policy_change(shared: &ControllerContext) {
    let users = shared.referrer_queues.clone();
    let kinds = shared.maps.caches.kinds.clone();
    shared.maps.caches.ingress.subscribe(move |change| {
        if change.old != change.new {
            let namespace = &change.key.namespace;
            users.add_namespace(&kinds.agents, namespace);
            users.add_namespace(&kinds.flows, namespace);
            users.add_namespace(&kinds.flow_sets, namespace);
            users.add_namespace(&kinds.mcp_servers, namespace);
        }
    });
}

/// Who refers to what, and the queue of each kind.
#[derive(Debug, Default)]
pub struct ReferrerQueues {
    referrers: Referrers,
    queues: Mutex<HashMap<&'static str, Arc<Workqueue>>>,
}

impl ReferrerQueues {
    fn add_queue(&self, kind: &'static str, queue: Arc<Workqueue>) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).insert(kind, queue);
    }

    /// Queues one object of this kind.
    pub(super) fn add(&self, kind: &'static str, key: &Key) {
        if let Some(queue) = self.queues.lock().unwrap_or_else(PoisonError::into_inner).get(kind) {
            queue.add(key);
        }
    }

    /// Queues every object of a kind.
    fn add_all<K: PhasedObject>(&self, map: &ObjectMap<K>) {
        map.keys().iter().for_each(|key| self.add(K::KIND, key));
    }

    /// Queues every object of a kind in this namespace.
    fn add_namespace<K: PhasedObject>(&self, map: &ObjectMap<K>, namespace: &str) {
        map.keys().iter().filter(|key| key.namespace == namespace).for_each(|key| self.add(K::KIND, key));
    }

    /// Queues all that use this object.
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
