//! Pods and a Deployment for tests.

use std::{collections::BTreeMap, net::IpAddr};

use actions::ports::{CachedChild, ChildKind, ChildRef, DeploymentState, WorkloadPod};

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
