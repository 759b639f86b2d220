//! The controller of EndpointSlices, and the ports of relays in Services.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, Preconditions},
};
use serde_json::json;

use crate::{
    names::ServicePort,
    output::LineSource,
    shared::NodeState,
    slices::{self, has_selector, is_selected},
};

/// Brings relays and slices up to date.
pub(crate) async fn reconcile(shared: &NodeState, services: &[Arc<Service>], pods: &[Arc<Pod>]) {
    for (service, error) in shared.relays.sync(services.iter().map(Arc::as_ref)) {
        let (namespace, name) = service.split_once('/').unwrap_or(("", &service));
        let source = LineSource {
            namespace: namespace.to_owned(),
            kind: "service".to_owned(),
            name: name.to_owned(),
            pod: String::new(),
            index: 1,
            container: String::new(),
        };
        shared.tell_once(&source, &format!("cannot be reached from this machine: {error}"));
    }
    shared.relays.update(services, pods, &shared.slices.all());
    for service in services {
        write_node_ports(shared, service).await;
    }
    write_slices(shared, services, pods).await;
}

/// Writes the ports of a Service's relays as its node ports.
async fn write_node_ports(shared: &NodeState, service: &Service) {
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
    let mut ports = service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default();
    let before = ports.clone();
    for port in &mut ports {
        let Ok(number) = u16::try_from(port.port) else { continue };
        let relay =
            shared.relays.address(&ServicePort { namespace: namespace.clone(), name: name.clone(), port: number });
        port.node_port = relay.map(|address| i32::from(address.port())).or(port.node_port);
    }
    if ports == before {
        return;
    }
    let api: Api<Service> = Api::namespaced(shared.client.clone(), &namespace);
    let patch = json!({ "metadata": { "uid": service.metadata.uid, "resourceVersion": service.metadata.resource_version }, "spec": { "ports": ports } });
    match api.patch(&name, &shared.patch(), &Patch::Merge(patch)).await {
        Ok(written) => shared.services.observe(written),
        // It is gone, or was changed; then it is looked at again.
        Err(error) => tracing::debug!(%error, "node ports of Service {namespace}/{name}"),
    }
}

/// Writes the slices that differ, and removes those of Pods that are gone. Slices of a Service that is gone go with it, and those of one
/// without a selector are its owner's.
async fn write_slices(shared: &NodeState, services: &[Arc<Service>], pods: &[Arc<Pod>]) {
    let mut wanted: HashMap<(String, String), EndpointSlice> = HashMap::new();
    for service in services.iter().filter(|service| has_selector(service)) {
        for pod in pods.iter().filter(|pod| is_selected(service, pod)) {
            let slice = slices::slice(service, pod);
            wanted.insert((slice.namespace().unwrap_or_default(), slice.name_any()), slice);
        }
    }
    let selecting: HashSet<&str> = services
        .iter()
        .filter(|service| has_selector(service))
        .filter_map(|service| service.metadata.uid.as_deref())
        .collect();
    let is_ours = |slice: &&Arc<EndpointSlice>| slices::made_for(slice).is_some_and(|uid| selecting.contains(uid));
    for found in shared.slices.all().iter().filter(is_ours) {
        let key = (found.namespace().unwrap_or_default(), found.name_any());
        let api: Api<EndpointSlice> = Api::namespaced(shared.client.clone(), &key.0);
        let result = match wanted.remove(&key) {
            Some(slice) if slices::is_same(found, &slice) => continue,
            Some(mut slice) => {
                slice.metadata.uid = found.metadata.uid.clone();
                api.replace(&key.1, &shared.write(), &slice).await.map(|written| shared.slices.observe(written))
            }
            None => {
                let preconditions = Some(Preconditions { uid: found.metadata.uid.clone(), resource_version: None });
                api.delete(&key.1, &DeleteParams { preconditions, ..DeleteParams::default() }).await.map(drop)
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "EndpointSlice {}/{}", key.0, key.1);
        }
    }
    for ((namespace, name), slice) in wanted {
        let api: Api<EndpointSlice> = Api::namespaced(shared.client.clone(), &namespace);
        match api.create(&shared.write(), &slice).await {
            Ok(written) => shared.slices.observe(written),
            Err(error) => tracing::debug!(%error, "EndpointSlice {namespace}/{name}"),
        }
    }
}
