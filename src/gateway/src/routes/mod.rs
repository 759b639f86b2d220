//! Routing table: the Pods of each workload. Watches fill it, and requests read it without a lock.
//!
//! Routes are copy on write: a route is never changed, only replaced, so a request sees a consistent snapshot of the
//! object and the Pods. State that must outlive a change (the queue, the counters, each Pod's connections) is shared by
//! old and new.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use cluster::endpoint_slice::EndpointState;
use meta::Key;
use tokio::time::Instant;

use super::{
    clock::Clock,
    endpoints::{PodEndpoint, WorkloadEndpoints},
    meter::Meter,
    meters::Meters,
    object::{Object, RoutedKind},
    pod::UpstreamPod,
    sessions::PodTag,
    workload::WorkloadState,
};

/// Longest time for which a Pod counts as ready by its sidecar's report alone, without its EndpointSlice.
const SELF_REPORTED_TTL: Duration = Duration::from_secs(60);

/// Snapshot of one workload: its object and its Pods. Immutable.
#[derive(Debug)]
pub struct Route {
    /// Object of the workload.
    pub(super) object: Arc<Object>,
    /// State shared by the workload's requests.
    pub(super) workload: Arc<WorkloadState>,
    /// Counters of the workload.
    pub(super) meter: Arc<Meter>,
    /// Pods to balance over: the ready ones, or if there is none the terminating ones that still serve.
    pub(super) pods: Arc<[Arc<UpstreamPod>]>,
    /// Every Pod in the EndpointSlices: sessions stay with theirs.
    pub(super) all: Arc<[Arc<UpstreamPod>]>,
    /// Pods that are neither ready nor terminating, and may be probed for readiness.
    pub(super) unready: Arc<[PodEndpoint]>,
}

/// Routing table of all workloads, by keys such as `agents/default/weather`.
///
/// Invariant: `routes` is derived from `parts`, and is written only under its lock.
#[derive(Debug)]
pub struct Routes {
    routes: papaya::HashMap<Box<[u8]>, Arc<Route>>,
    parts: Mutex<HashMap<Box<[u8]>, RouteInputs>>,
    clock: Clock,
    meters: Arc<Meters>,
}

/// Inputs from which a route is built. They exist as long as the object or a slice of the workload does.
#[derive(Debug)]
struct RouteInputs {
    workload: Arc<WorkloadState>,
    object: Option<Arc<Object>>,
    slices: HashMap<Box<str>, Arc<WorkloadEndpoints>>,
    pods: HashMap<Box<str>, Arc<UpstreamPod>>,
    /// Pods that count as ready by their sidecar's report, by uid, and until when; `None` once expired: they are not
    /// probed again.
    self_reported: HashMap<Box<str>, Option<Instant>>,
}

impl Routes {
    /// Creates an empty table.
    pub fn new(clock: Clock) -> Self {
        Self::with_meters(clock, Arc::new(Meters::new(true)))
    }

    /// Creates an empty table whose workloads are counted by these meters.
    pub(super) fn with_meters(clock: Clock, meters: Arc<Meters>) -> Self {
        Self { routes: papaya::HashMap::new(), parts: Mutex::default(), clock, meters }
    }

    /// Returns the route of this key.
    pub fn find(&self, key: &[u8]) -> Option<Arc<Route>> {
        self.routes.pin().get(key).cloned()
    }

    /// Returns every route.
    pub(super) fn all(&self) -> Vec<Arc<Route>> {
        self.routes.pin().values().cloned().collect()
    }

    /// Reports whether some agent is such.
    pub(super) fn any_agent(&self, is_such: impl Fn(&Route) -> bool) -> bool {
        self.routes.pin().values().any(|route| route.workload.kind == RoutedKind::Agent && is_such(route))
    }

    /// Returns those of the agents with the paths of our runner that `may_see` selects and whose `namespace/name` comes
    /// after this text, in this order.
    pub(super) fn agents_after(&self, after: &str, may_see: impl Fn(&Route) -> bool) -> Vec<Arc<Route>> {
        let is_listed = |route: &Route| {
            route.workload.kind == RoutedKind::Agent && !route.object.listing.speaks_otherwise && may_see(route)
        };
        let routes = self.routes.pin();
        let listed = routes.values().filter(|route| is_listed(route)).map(|route| (route.agent_name(), route.clone()));
        let mut agents: Vec<_> = listed.filter(|(name, _)| name.as_str() > after).collect();
        agents.sort_by(|(one, _), (other, _)| one.cmp(other));
        agents.into_iter().map(|(_, route)| route).collect()
    }

    /// Applies a change of a workload's object.
    pub fn object(&self, kind: RoutedKind, key: &Key, object: Option<Arc<Object>>) {
        self.update(kind, &key.namespace, &key.name, |parts| parts.object = object);
    }

    /// Applies a change of an EndpointSlice.
    pub fn slice(&self, key: &Key, old: Option<&WorkloadEndpoints>, new: Option<&Arc<WorkloadEndpoints>>) {
        let before = old.and_then(|slice| slice.workload.as_ref());
        let after = new.and_then(|slice| slice.workload.as_ref());
        if let Some((kind, name)) = before.filter(|before| Some(*before) != after) {
            self.update(*kind, &key.namespace, name, |parts| {
                parts.slices.remove(key.name.as_str());
            });
        }
        if let (Some((kind, name)), Some(slice)) = (after, new) {
            self.update(*kind, &key.namespace, name, |parts| {
                parts.slices.insert(key.name.as_str().into(), slice.clone());
            });
        }
    }

    /// Marks a Pod as ready by its sidecar's report, until its EndpointSlice agrees, and for about a minute at most.
    pub(super) fn mark_self_reported(&self, workload: &WorkloadState, uid: &str) {
        self.update(workload.kind, &workload.namespace, &workload.name, |parts| {
            parts.self_reported.entry(uid.into()).or_insert(Some(Instant::now() + SELF_REPORTED_TTL));
        });
    }

    /// Withdraws that mark: the Pod has not served a request that it got. It may be probed again.
    pub(super) fn unmark_self_reported(&self, workload: &WorkloadState, tag: &PodTag) {
        self.update(workload.kind, &workload.namespace, &workload.name, |parts| {
            parts.self_reported.retain(|uid, _| PodTag::of(uid) != *tag);
        });
    }

    /// Closes connections that were idle for too long, and expires Pods that were ready by their report alone for too
    /// long.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let is_over = |parts: &&RouteInputs| parts.self_reported.values().flatten().any(|until| *until <= now);
        let over: Vec<_> = self.parts().values().filter(is_over).map(|parts| parts.workload.clone()).collect();
        for workload in over {
            self.update(workload.kind, &workload.namespace, &workload.name, |_| {});
        }
        for route in self.all() {
            route.pods.iter().for_each(|pod| pod.sweep());
        }
        self.meters.sweep();
    }

    fn update(&self, kind: RoutedKind, namespace: &str, name: &str, change: impl FnOnce(&mut RouteInputs)) {
        let key: Box<[u8]> = format!("{}/{namespace}/{name}", kind.word()).into_bytes().into();
        let mut all = self.parts();
        let parts = all.entry(key.clone()).or_insert_with(|| RouteInputs {
            workload: WorkloadState::new(kind, namespace, name, self.clock),
            object: None,
            slices: HashMap::new(),
            pods: HashMap::new(),
            self_reported: HashMap::new(),
        });
        let before = parts.object.clone();
        change(parts);
        let (pods, unready) = parts.pods();
        let all_pods: Arc<[Arc<UpstreamPod>]> = parts.pods.values().cloned().collect();
        let routes = self.routes.pin();
        match &parts.object {
            Some(object) => {
                let (object, workload) = (object.clone(), parts.workload.clone());
                let meter = self.meters.enter(kind, &key, namespace, name);
                let route = Route { object, workload, meter, pods: pods.clone(), all: all_pods, unready };
                routes.insert(key.clone(), Arc::new(route));
            }
            None => {
                routes.remove(&key);
                self.meters.leave(&key);
            }
        }
        let stands = |object: &Option<Arc<Object>>| object.as_ref().map(|object| object.no_pod.is_some());
        parts.workload.slots.set_pods(pods, stands(&before) != stands(&parts.object));
        if parts.object.is_none() && parts.slices.is_empty() {
            all.remove(&key);
        }
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, RouteInputs>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Route {
    /// Returns the name of an agent as a model: `namespace/name`.
    pub(super) fn agent_name(&self) -> String {
        format!("{}/{}", self.workload.namespace, self.workload.name)
    }
}

impl RouteInputs {
    /// Returns the Pods to balance over, from all slices, and the Pods that are not ready. Known Pods keep their state.
    fn pods(&mut self) -> (Arc<[Arc<UpstreamPod>]>, Arc<[PodEndpoint]>) {
        let now = Instant::now();
        let cap = self.object.as_ref().and_then(|object| object.concurrency).unwrap_or(0);
        let mut known = HashMap::new();
        let (mut found, mut unready): (Vec<(EndpointState, Arc<UpstreamPod>)>, Vec<PodEndpoint>) = Default::default();
        for until in self.self_reported.values_mut() {
            *until = until.filter(|until| *until > now);
        }
        // A Service of the same name that the operator does not own is ignored: its Pods are not the workload's.
        let service = self.object.as_ref().and_then(|object| object.service.as_deref());
        let ours = self.slices.values().filter(|slice| Some(&*slice.service) == service);
        for endpoint in ours.flat_map(|slice| &slice.endpoints) {
            // A Pod may be in two slices: while it moves between them, and with an address of each IP family.
            if known.contains_key(&endpoint.uid) {
                continue;
            }
            let pod = match self.pods.get(&endpoint.uid).filter(|pod| pod.address == endpoint.address) {
                Some(pod) => pod.clone(),
                None => Arc::new(UpstreamPod::new(endpoint.address, cap).with_uid(&endpoint.uid)),
            };
            known.insert(endpoint.uid.clone(), pod.clone());
            let early = self.self_reported.get(&endpoint.uid).copied();
            let is_early = endpoint.state == EndpointState::Unready && early.flatten().is_some();
            if endpoint.state != EndpointState::Unready {
                // The EndpointSlice supersedes the report.
                self.self_reported.remove(&endpoint.uid);
            } else if early.is_none() && *endpoint.uid != *endpoint.address.ip().to_string() {
                unready.push(endpoint.clone());
            }
            let state = if is_early { EndpointState::Ready } else { endpoint.state };
            pod.is_self_reported.store(is_early, Relaxed);
            pod.set_pooling(state == EndpointState::Ready);
            found.push((state, pod));
        }
        let gone = self.pods.iter().filter(|(uid, pod)| !known.get(*uid).is_some_and(|now| Arc::ptr_eq(now, pod)));
        gone.for_each(|(_, pod)| pod.set_pooling(false));
        self.self_reported.retain(|uid, _| known.contains_key(uid));
        self.pods = known;
        let best = found.iter().map(|(state, _)| *state).max().unwrap_or(EndpointState::Gone);
        let asked = found.into_iter().filter(|(state, _)| *state == best && best >= EndpointState::Leaving);
        (asked.map(|(_, pod)| pod).collect(), unready.into())
    }
}

#[cfg(test)]
mod tests;
