//! Where each workload's requests go: filled by watches, read by every request without a lock.
//!
//! A route is never changed, only replaced, so that a request sees the object and the Pods of one moment. What must outlive
//! a change — the queue, the counters, each Pod's connections — is shared between the old and the new.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actions::machine::Key;

use super::{
    clock::Clock,
    object::{Kind, Object},
    pod::Pod,
    slice::{Slice, Standing},
    workload::Workload,
};

/// Where a workload's requests go.
#[derive(Debug)]
pub struct Route {
    /// The workload's object.
    pub(super) object: Arc<Object>,
    /// What its requests share.
    pub(super) workload: Arc<Workload>,
    /// The Pods to be asked: the ready ones, else those that are going and still serve.
    pub(super) pods: Arc<[Arc<Pod>]>,
    /// Every Pod that is still there: sessions stay with theirs.
    pub(super) all: Arc<[Arc<Pod>]>,
}

/// The routes of all workloads, by keys such as `agents/default/weather`.
#[derive(Debug)]
pub struct Routes {
    routes: papaya::HashMap<Box<[u8]>, Arc<Route>>,
    parts: Mutex<HashMap<Box<[u8]>, Parts>>,
    clock: Clock,
}

/// What a route is made of.
#[derive(Debug)]
struct Parts {
    workload: Arc<Workload>,
    object: Option<Arc<Object>>,
    slices: HashMap<Box<str>, Arc<Slice>>,
    pods: HashMap<Box<str>, Arc<Pod>>,
}

impl Routes {
    /// No routes yet.
    pub fn new(clock: Clock) -> Self {
        Self { routes: papaya::HashMap::new(), parts: Mutex::default(), clock }
    }

    /// The route of this key.
    pub fn find(&self, key: &[u8]) -> Option<Arc<Route>> {
        self.routes.pin().get(key).cloned()
    }

    /// Every route.
    pub(super) fn all(&self) -> Vec<Arc<Route>> {
        self.routes.pin().values().cloned().collect()
    }

    /// Follows a change of a workload's object.
    pub fn object(&self, kind: Kind, key: &Key, object: Option<Arc<Object>>) {
        self.change(kind, &key.namespace, &key.name, |parts| parts.object = object);
    }

    /// Follows a change of a slice.
    pub fn slice(&self, key: &Key, old: Option<&Slice>, new: Option<&Arc<Slice>>) {
        let before = old.and_then(|slice| slice.workload.as_ref());
        let after = new.and_then(|slice| slice.workload.as_ref());
        if let Some((kind, name)) = before.filter(|before| Some(*before) != after) {
            self.change(*kind, &key.namespace, name, |parts| {
                parts.slices.remove(key.name.as_str());
            });
        }
        if let (Some((kind, name)), Some(slice)) = (after, new) {
            self.change(*kind, &key.namespace, name, |parts| {
                parts.slices.insert(key.name.as_str().into(), slice.clone());
            });
        }
    }

    /// Closes connections that were idle for too long.
    pub(super) fn sweep(&self) {
        for route in self.all() {
            route.pods.iter().for_each(|pod| pod.sweep());
        }
    }

    fn change(&self, kind: Kind, namespace: &str, name: &str, change: impl FnOnce(&mut Parts)) {
        let key: Box<[u8]> = format!("{}/{namespace}/{name}", kind.word()).into_bytes().into();
        let mut all = self.parts();
        let parts = all.entry(key.clone()).or_insert_with(|| Parts {
            workload: Workload::new(kind, namespace, name, self.clock),
            object: None,
            slices: HashMap::new(),
            pods: HashMap::new(),
        });
        let before = parts.object.clone();
        change(parts);
        let pods = parts.pods();
        let all_pods: Arc<[Arc<Pod>]> = parts.pods.values().cloned().collect();
        let routes = self.routes.pin();
        match &parts.object {
            Some(object) => {
                let (object, workload) = (object.clone(), parts.workload.clone());
                let route = Route { object, workload, pods: pods.clone(), all: all_pods };
                routes.insert(key.clone(), Arc::new(route));
            }
            None => {
                routes.remove(&key);
            }
        }
        let stands = |object: &Option<Arc<Object>>| object.as_ref().map(|object| object.halt.is_some());
        parts.workload.change(pods, stands(&before) != stands(&parts.object));
        if parts.object.is_none() && parts.slices.is_empty() {
            all.remove(&key);
        }
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    /// The Pods to be asked, after every slice; Pods known before keep what is known of them.
    fn pods(&mut self) -> Arc<[Arc<Pod>]> {
        let cap = self.object.as_ref().and_then(|object| object.concurrency).unwrap_or(0);
        let mut known = HashMap::new();
        let mut found: Vec<(Standing, Arc<Pod>)> = Vec::new();
        // Another Service of the name is not the operator's: its Pods are no Pods of the workload.
        let service = self.object.as_ref().and_then(|object| object.service.as_deref());
        let ours = self.slices.values().filter(|slice| Some(&*slice.service) == service);
        for endpoint in ours.flat_map(|slice| &slice.endpoints) {
            // A Pod may be in two slices: while it moves between them, and with an address of each family.
            if known.contains_key(&endpoint.uid) {
                continue;
            }
            let pod = match self.pods.get(&endpoint.uid).filter(|pod| pod.address == endpoint.address) {
                Some(pod) => pod.clone(),
                None => Arc::new(Pod::new(endpoint.address, cap).of(&endpoint.uid)),
            };
            known.insert(endpoint.uid.clone(), pod.clone());
            pod.keeps_connections(endpoint.standing == Standing::Ready);
            found.push((endpoint.standing, pod));
        }
        let gone = self.pods.iter().filter(|(uid, pod)| !known.get(*uid).is_some_and(|now| Arc::ptr_eq(now, pod)));
        gone.for_each(|(_, pod)| pod.keeps_connections(false));
        self.pods = known;
        let best = found.iter().map(|(standing, _)| *standing).max().unwrap_or(Standing::Unready);
        let asked = found.into_iter().filter(|(standing, _)| *standing == best && best != Standing::Unready);
        asked.map(|(_, pod)| pod).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::gateway::{object::testing::object, slice::Endpoint};

    const KEY: &[u8] = b"flows/ns/f";

    fn routes() -> Routes {
        let routes = Routes::new(Clock::new());
        routes.object(Kind::Flow, &Key::new("ns", "f"), Some(Arc::new(object())));
        routes
    }

    fn slice(workload: &str, endpoints: &[(&str, u8, Standing)]) -> Arc<Slice> {
        let endpoint = |(uid, at, standing): &(&str, u8, Standing)| Endpoint {
            uid: (*uid).into(),
            address: SocketAddr::from(([10, 0, 0, *at], 8888)),
            standing: *standing,
        };
        let workload = Some((Kind::Flow, workload.into()));
        Arc::new(Slice { workload, service: "s".into(), endpoints: endpoints.iter().map(endpoint).collect() })
    }

    /// The last byte of each Pod's address, in order.
    fn pods(routes: &Routes) -> Vec<u8> {
        let ip = |pod: &Arc<Pod>| match pod.address {
            SocketAddr::V4(address) => address.ip().octets()[3],
            SocketAddr::V6(_) => 0,
        };
        let mut found: Vec<_> = routes.find(KEY).unwrap().pods.iter().map(ip).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn the_ready_pods_of_every_slice_are_asked_each_once_and_those_that_go_when_nobody_is_ready() {
        use Standing::{Leaving, Ready, Unready};
        let routes = routes();
        let (a, b) = (Key::new("ns", "f-a"), Key::new("ns", "f-b"));
        let first = slice("f", &[("p", 1, Ready), ("q", 2, Leaving), ("r", 3, Unready)]);
        routes.slice(&a, None, Some(&first));
        routes.slice(&b, None, Some(&slice("f", &[("p", 1, Ready), ("s", 4, Ready)])));
        assert_eq!(pods(&routes), [1, 4]);
        let second = slice("f", &[("p", 1, Leaving), ("q", 2, Leaving), ("r", 3, Unready)]);
        routes.slice(&a, Some(&first), Some(&second));
        routes.slice(&b, None, Some(&slice("f", &[])));
        assert_eq!(pods(&routes), [1, 2]);
        routes.slice(&a, Some(&second), None);
        assert!(pods(&routes).is_empty());
    }

    #[test]
    fn only_slices_of_the_service_that_the_operator_made_count() {
        let routes = routes();
        let of = |service: &str, at| {
            let slice = slice("f", &[("p", at, Standing::Ready)]);
            Arc::new(Slice {
                workload: slice.workload.clone(),
                service: service.into(),
                endpoints: slice.endpoints.clone(),
            })
        };
        routes.slice(&Key::new("ns", "f-a"), None, Some(&of("s", 1)));
        routes.slice(&Key::new("ns", "thief"), None, Some(&of("t", 2)));
        assert_eq!(pods(&routes), [1]);
        // The Service was made anew, and both are looked at again.
        routes.object(
            Kind::Flow,
            &Key::new("ns", "f"),
            Some(Arc::new(Object { service: Some("t".into()), ..object() })),
        );
        assert_eq!(pods(&routes), [2]);
        routes.slice(&Key::new("ns", "f-a"), Some(&of("s", 1)), Some(&of("t", 3)));
        routes.slice(&Key::new("ns", "thief"), Some(&of("t", 2)), None);
        assert_eq!(pods(&routes), [3]);
        routes.object(Kind::Flow, &Key::new("ns", "f"), Some(Arc::new(Object { service: None, ..object() })));
        assert_eq!(pods(&routes), [0; 0], "as long as none is written down");
    }

    #[test]
    fn a_pod_stays_the_same_through_changes_until_it_moves() {
        let routes = routes();
        let key = Key::new("ns", "f-a");
        let of = |at: u8| slice("f", &[("p", at, Standing::Ready)]);
        routes.slice(&key, None, Some(&of(1)));
        let before = routes.find(KEY).unwrap().pods[0].clone();
        routes.slice(&key, Some(&of(1)), Some(&slice("f", &[("p", 1, Standing::Ready), ("q", 2, Standing::Ready)])));
        assert!(routes.find(KEY).unwrap().pods.iter().any(|pod| Arc::ptr_eq(pod, &before)));
        routes.slice(&key, Some(&of(1)), Some(&of(9)));
        assert_eq!(pods(&routes), [9]);
    }

    #[test]
    fn a_slice_that_changes_hands_leaves_nothing_behind() {
        let routes = routes();
        let key = Key::new("ns", "x");
        let (ours, other) = (slice("f", &[("p", 1, Standing::Ready)]), slice("g", &[("p", 1, Standing::Ready)]));
        routes.slice(&key, None, Some(&ours));
        routes.slice(&key, Some(&ours), Some(&other));
        assert!(pods(&routes).is_empty());
        assert!(routes.find(b"flows/ns/g").is_none(), "Pods alone are no workload");
        routes.slice(&key, Some(&other), None);
        routes.object(Kind::Flow, &Key::new("ns", "f"), None);
        assert!(routes.find(KEY).is_none() && routes.parts().is_empty());
    }
}
