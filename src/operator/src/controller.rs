//! One kind at work: its queue, its driver, and what puts an object into the queue.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use actions::{deps::Deps, ports::ChildKind};
use cluster::{
    Board, CustomObjects, ObjectMap, Transport,
    cache::{NamespaceSeen, Referrers},
};
use crds::RefKind;
use futures::future::BoxFuture;
use machine::{ApiError, Clock, Driver, Requeue, Sink, TableError};
use meta::{Key, PhasedObject};
use tokio::sync::watch;

use super::{controlled::Controlled, queue::Queue, unknown::Unknown, wake, watches::Maps};

/// What the controllers of all kinds share.
pub struct Shared {
    /// The maps that the watches fill.
    pub maps: Arc<Maps>,
    /// What writes go through.
    pub transport: Arc<Transport>,
    /// The ports of the actions.
    pub world: Arc<Deps>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Who refers to what.
    pub users: Arc<Users>,
    /// Where steps are told.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// This operator among others, as namespace and name of its lease.
    pub instance: String,
    /// For tests: whether some wakes are lost.
    pub lose_wakes: bool,
    /// What the watches know.
    pub board: Arc<Board>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A controller, whatever its kind.
pub trait Controller: Send + Sync {
    /// The kind.
    fn kind(&self) -> &'static str;
    /// How many of its objects wait for a worker.
    fn depth(&self) -> usize;
    /// Takes every object through its steps, for as long as this is polled.
    fn lead(&self, workers: usize) -> BoxFuture<'_, ()>;
}

struct Running<K: Controlled> {
    queue: Arc<Queue>,
    driver: Arc<Driver<K, Deps>>,
    map: Arc<ObjectMap<K>>,
    unknown: Arc<Unknown>,
}

/// How soon an object is looked at again whose step would read what is on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

impl<K: Controlled> Controller for Running<K> {
    fn kind(&self) -> &'static str {
        K::KIND
    }

    fn depth(&self) -> usize {
        self.queue.depth()
    }

    fn lead(&self, workers: usize) -> BoxFuture<'_, ()> {
        let (driver, unknown) = (self.driver.clone(), self.unknown.clone());
        let step = move |key| {
            let (driver, unknown) = (driver.clone(), unknown.clone());
            async move {
                match unknown.keeps::<K>(&key) {
                    None => driver.reconcile(&key).await,
                    Some(found) if found.refused => {
                        driver.report_unreadable(&key, ApiError::Forbidden(found.why)).await
                    }
                    Some(_) => Requeue::After(ON_ITS_WAY),
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
pub fn controller<K: Controlled>(shared: &Shared) -> Result<Arc<dyn Controller>, TableError> {
    let queue = Arc::new(if shared.lose_wakes { Queue::lossy() } else { Queue::default() });
    let map = K::map(&shared.maps.views.kinds);
    wire(shared, map, &queue);
    let objects = Arc::new(CustomObjects::new(shared.transport.clone(), map.clone()));
    let mut driver =
        Driver::new(K::registry()?, shared.world.clone(), objects, shared.clock.clone(), shared.sinks.clone());
    driver.set_instance(&shared.instance);
    let unknown =
        Arc::new(Unknown::new(shared.board.clone(), shared.maps.views.kinds.clone(), shared.world.cache.clone()));
    Ok(Arc::new(Running { queue, driver: Arc::new(driver), map: map.clone(), unknown }))
}

fn wire<K: Controlled>(shared: &Shared, map: &ObjectMap<K>, queue: &Arc<Queue>) {
    shared.users.add_queue(K::KIND, queue.clone());
    let (own, users) = (queue.clone(), shared.users.clone());
    map.subscribe(move |change| {
        users.referrers.follow(change);
        if wake::wakes_itself(change) {
            own.add(&change.key);
        }
        if let Some(kind) = RefKind::parse(K::KIND)
            && wake::wakes_referrers(change)
        {
            users.wake(kind, &change.key);
        }
    });
    let views = &shared.maps.views;
    for kind in K::CHILDREN {
        let Some(children) = views.children.get(kind) else { continue };
        let queue = queue.clone();
        children.subscribe(move |change| {
            if wake::wakes_owner(change) {
                wake::owners(K::KIND, change).for_each(|owner| queue.add(&owner));
            }
        });
    }
    if K::PODS {
        let queue = queue.clone();
        views.pods.subscribe(move |change| {
            if wake::wakes_workload(change) {
                wake::workloads(K::KIND, change).for_each(|workload| queue.add(&workload));
            }
        });
    }
}

/// Lets Secrets and ConfigMaps wake whoever reads them.
pub(super) fn wake_readers(shared: &Shared) {
    for (kind, data) in [(RefKind::Secret, ChildKind::Secret), (RefKind::ConfigMap, ChildKind::ConfigMap)] {
        let Some(data) = shared.maps.views.children.get(&data) else { continue };
        let users = shared.users.clone();
        data.subscribe(move |change| {
            if wake::wakes_readers(change) {
                users.wake(kind, &change.key);
            }
        });
    }
}

/// Lets the labels of a namespace wake those of its objects for which they count.
pub(super) fn wake_admitted(shared: &Shared) {
    let users = shared.users.clone();
    shared.maps.views.namespaces.subscribe(move |change| {
        let labels = |seen: &Option<Arc<NamespaceSeen>>| seen.as_ref().map(|seen| seen.labels.clone());
        if labels(&change.old) != labels(&change.new) {
            users.wake_all(users.referrers.of_namespace(&change.key.name));
        }
    });
}

/// Wakes every workload when the keys of the gateways are others: their Pods may know none of them.
pub(super) async fn wake_keyed(mut read: watch::Receiver<bool>, maps: Arc<Maps>, users: Arc<Users>) {
    let kinds = &maps.views.kinds;
    while read.changed().await.is_ok() {
        users.add_all(&kinds.agents);
        users.add_all(&kinds.flows);
        users.add_all(&kinds.flow_sets);
        users.add_all(&kinds.mcp_servers);
    }
}

/// Wakes the workloads of a namespace whose NetworkPolicies somebody changed: theirs may have to go.
pub(super) fn wake_governed(shared: &Shared) {
    let users = shared.users.clone();
    let kinds = shared.maps.views.kinds.clone();
    shared.maps.views.ingress.subscribe(move |change| {
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
pub struct Users {
    referrers: Referrers,
    queues: Mutex<HashMap<&'static str, Arc<Queue>>>,
}

impl Users {
    fn add_queue(&self, kind: &'static str, queue: Arc<Queue>) {
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
    fn wake(&self, kind: RefKind, key: &Key) {
        self.wake_all(self.referrers.of(kind, key));
    }

    fn wake_all(&self, users: BTreeSet<(&'static str, Key)>) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, user) in users {
            if let Some(queue) = queues.get(kind) {
                queue.add(&user);
            }
        }
    }
}
