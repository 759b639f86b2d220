//! Pods, a Deployment and caches for tests.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use actions::ports::{CacheReader, CachedChild, ChildKind, ChildRef, DeploymentState, WorkloadPod};
use cluster::{
    ChangeSource, ObjectMap, ObjectVersion, Transport, Versioned, WatchHealth, WriteGate,
    cache::{Caches, InformerReader},
    crash::CrashPoint,
    metrics::ApiMetrics,
};
use machine::{Clock, SystemClock};
use meta::Key;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::LiveFleet;

/// Returns the workloads of these caches, which are written through `client`.
pub(super) fn fleet(client: kube::Client, maps: &Caches, board: &Arc<WatchHealth>) -> LiveFleet {
    let transport = Transport::new(client, || None, WriteGate::always(), CrashPoint::default(), ApiMetrics::default());
    let caches: Arc<dyn CacheReader> = Arc::new(InformerReader::new(maps, board.clone()));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    LiveFleet::new(&Arc::new(transport), maps, &caches, &clock, Arc::default(), board.clone())
}

/// Puts an object of this version into a cache, as its watch does.
pub(super) fn observe<K: DeserializeOwned>(map: &ObjectMap<K>, version: u64, object: Value) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let key = Key::new(text("namespace"), text("name"));
    let head = ObjectVersion { key, uid: text("uid").to_owned(), resource_version: version };
    map.observe(Versioned::new(head, serde_json::from_value(object).unwrap()), ChangeSource::Watch);
}

/// Returns a ready Pod of this name, which is its uid too.
pub(super) fn pod(name: &str, ip: impl Into<IpAddr>) -> WorkloadPod {
    WorkloadPod {
        name: name.to_owned(),
        uid: name.to_owned(),
        resource_version: 1,
        labels: BTreeMap::new(),
        ready: true,
        terminating: false,
        ip: Some(ip.into()),
        port: 8888,
        deletion_cost: None,
        problem: None,
    }
}

/// Returns the Deployment of `Agent ns/a`.
pub(super) fn deployment(state: DeploymentState) -> CachedChild {
    CachedChild {
        child: ChildRef { kind: ChildKind::Deployment, namespace: "ns".into(), name: "a".into() },
        uid: "d".into(),
        resource_version: 1,
        generation: 1,
        labels: BTreeMap::new(),
        controller: None,
        owned: None,
        deleting: false,
        data: BTreeMap::new(),
        deployment: Some(state),
        definitions: None,
    }
}
