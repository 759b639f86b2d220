//! EndpointSlices of Services, as their controller makes them, one per Pod: each Pod has ports of its own. Pure.

use std::{collections::BTreeMap, net::SocketAddr};

use k8s_openapi::{
    api::{
        core::v1::{ObjectReference, Pod, Service, ServicePort},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};
use sha2::{Digest as _, Sha256};

use crate::{
    config::NODE_NAME,
    pod_spec::containers,
    ports::PortMap,
    roll_out::{is_deleting, ready_since},
};

/// Label with the tool that made a slice, and its value for the controller.
const MANAGED_BY: (&str, &str) = ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");
/// Label with the Service of a slice.
const SERVICE: &str = "kubernetes.io/service-name";

/// Readiness of a Pod for the requests of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readiness {
    /// Ready.
    Ready,
    /// Going, and still serving.
    Leaving,
    /// Neither.
    No,
}

/// Reports whether a Service is only another name of a host.
pub(crate) fn is_external(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"))
}

/// Reports whether a Service's Pods are found by a selector. Else its slices are written by others.
pub(crate) fn has_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    !is_external(service) && spec.and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty())
}

/// Reports whether a Pod is behind a Service.
pub(crate) fn is_selected(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let labels = pod.metadata.labels.as_ref();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_address = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
    has_selector(service)
        && service.metadata.namespace == pod.metadata.namespace
        && has_address
        && !matches!(phase, Some("Failed" | "Succeeded"))
        && selector.into_iter().flatten().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// Returns the readiness of a Pod.
pub(crate) fn readiness(service: &Service, pod: &Pod) -> Readiness {
    let publishes_all = service.spec.as_ref().is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    match (ready_since(pod).is_some(), is_deleting(pod)) {
        (true, false) => Readiness::Ready,
        _ if publishes_all => Readiness::Ready,
        (true, true) => Readiness::Leaving,
        (false, _) => Readiness::No,
    }
}

/// Returns the port of a Pod that a port of a Service leads to.
pub(crate) fn target_port(pod: &Pod, port: &ServicePort) -> Option<u16> {
    let target = port.target_port.clone().unwrap_or(IntOrString::Int(port.port));
    let found = match target {
        IntOrString::Int(number) => PortMap::of(pod.metadata.annotations.as_ref()).port(number),
        IntOrString::String(name) => {
            let ports = pod.spec.iter().flat_map(containers).flat_map(|container| container.ports.iter().flatten());
            ports.into_iter().find(|port| port.name.as_deref() == Some(name.as_str()))?.container_port
        }
    };
    u16::try_from(found).ok()
}

/// Returns the slice of a Service for one of its Pods.
pub(crate) fn slice(service: &Service, pod: &Pod) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let mut labels: BTreeMap<String, String> = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE.to_owned(), name.clone());
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    let headless = service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"));
    if headless {
        labels.insert("service.kubernetes.io/headless".to_owned(), String::new());
    }
    let state = readiness(service, pod);
    let conditions = EndpointConditions {
        ready: Some(state == Readiness::Ready),
        serving: Some(ready_since(pod).is_some()),
        terminating: Some(is_deleting(pod)),
    };
    let target = ObjectReference {
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: Some(uid.clone()),
        ..ObjectReference::default()
    };
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(i32::from(target_port(pod, port)?)),
            protocol: port.protocol.clone().or(Some("TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    EndpointSlice {
        address_type: "IPv4".to_owned(),
        metadata: ObjectMeta {
            name: Some(format!("{name}-{}", &hex::encode(Sha256::digest(uid))[..8])),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Service".to_owned(),
                name,
                uid: service.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        endpoints: Some(vec![Endpoint {
            addresses: pod.status.iter().filter_map(|status| status.pod_ip.clone()).collect(),
            conditions: Some(conditions),
            node_name: Some(NODE_NAME.to_owned()),
            target_ref: Some(target),
            ..Endpoint::default()
        }]),
        ports: Some(ports.collect()),
    }
}

/// Returns the uid of the Service that a slice was made for, as the controller makes them.
pub(crate) fn made_for(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref();
    let made = labels.and_then(|labels| labels.get(MANAGED_BY.0)).is_some_and(|by| by == MANAGED_BY.1);
    let owner = slice.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Service");
    owner.filter(|_| made).map(|owner| owner.uid.as_str())
}

/// Returns the addresses that a slice has for a port of its Service, each with its readiness.
pub(crate) fn addresses(service: &Service, port: &ServicePort, slice: &EndpointSlice) -> Vec<(SocketAddr, Readiness)> {
    let named = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE));
    if slice.metadata.namespace != service.metadata.namespace || named != service.metadata.name.as_ref() {
        return Vec::new();
    }
    let name = port.name.as_deref().unwrap_or_default();
    let mut ports = slice.ports.iter().flatten();
    let found = ports.find(|found| found.name.as_deref().unwrap_or_default() == name).and_then(|found| found.port);
    let Some(number) = found.and_then(|number| u16::try_from(number).ok()) else { return Vec::new() };
    let endpoints = slice.endpoints.iter().flatten().filter_map(|endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let state = match (ready, conditions.serving.unwrap_or(ready)) {
            (true, _) => Readiness::Ready,
            (false, true) => Readiness::Leaving,
            (false, false) => Readiness::No,
        };
        Some((SocketAddr::new(endpoint.addresses.first()?.parse().ok()?, number), state))
    });
    endpoints.collect()
}

/// Reports whether a slice is as it should be.
pub(crate) fn is_same(found: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    found.metadata.labels == wanted.metadata.labels
        && found.metadata.owner_references == wanted.metadata.owner_references
        && found.endpoints == wanted.endpoints
        && found.ports.clone().unwrap_or_default() == wanted.ports.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
