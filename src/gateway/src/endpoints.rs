//! Maps an EndpointSlice of an operator-managed Service to the Pods of a workload.

use std::net::SocketAddr;

use cluster::{
    ObjectVersion,
    cache::workload_label,
    endpoint_slice::{EndpointSlice, EndpointState},
};

use super::object::RoutedKind;

/// Label selector of the watch: Kubernetes copies the labels of a Service to its slices.
pub(super) const LABELS: &str = "app.kubernetes.io/managed-by=recif-operator";

/// Pods of one EndpointSlice.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WorkloadEndpoints {
    /// Workload of the slice, if its kind is routed and Kubernetes made the slice for the Service of the workload's
    /// name.
    pub workload: Option<(RoutedKind, Box<str>)>,
    /// Uid of that Service. [`super::object::Object::service`] says whether it is the workload's own.
    pub service: Box<str>,
    /// Pods of the slice that have an address.
    pub endpoints: Box<[PodEndpoint]>,
}

/// Pod behind a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEndpoint {
    /// Uid of the Pod.
    pub uid: Box<str>,
    /// Address at which the Pod listens.
    pub address: SocketAddr,
    /// Readiness of the Pod.
    pub state: EndpointState,
}

/// Decodes an EndpointSlice.
///
/// # Errors
/// The JSON is no EndpointSlice.
pub(super) fn read(_: &ObjectVersion, json: &str) -> Result<WorkloadEndpoints, serde_json::Error> {
    let slice = EndpointSlice::read(json)?;
    let found = RoutedKind::ALL.into_iter().find_map(|kind| {
        let name = slice.labels().get(&workload_label(kind.name()))?;
        let service = slice.service(name)?;
        Some(((kind, name.as_str().into()), service.into()))
    });
    let (workload, service) = found.unzip();
    let pods = slice.port("http").into_iter().flat_map(|port| {
        slice.endpoints().map(move |pod| PodEndpoint {
            uid: pod.uid,
            address: SocketAddr::new(pod.ip, port),
            state: pod.state,
        })
    });
    let endpoints = pods.collect();
    Ok(WorkloadEndpoints { workload, service: service.unwrap_or_default(), endpoints })
}

#[cfg(test)]
mod tests {
    use cluster::decode::object_version;

    use super::*;

    #[test]
    fn a_slice_says_where_the_pods_of_which_workload_are() {
        let json = r#"{"metadata":{"name":"a-x","namespace":"ns","uid":"u","resourceVersion":"7",
            "labels":{"recif.dev/flowset":"a","kubernetes.io/service-name":"a",
            "endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"},
            "ownerReferences":[{"apiVersion":"v1","kind":"Service","name":"a","uid":"s","controller":true}]},
            "addressType":"IPv4",
            "ports":[{"name":"other","port":1},{"name":"http","port":8888}],"endpoints":[
            {"addresses":["10.0.0.2"],"targetRef":{"kind":"Pod","uid":"p2"},
             "conditions":{"ready":false,"serving":true,"terminating":true}},
            {"addresses":["10.0.0.4"]}]}"#;
        let slice = read(&object_version(json).unwrap(), json).unwrap();
        assert_eq!((slice.workload, &*slice.service), (Some((RoutedKind::FlowSet, "a".into())), "s"));
        let thief = json.replace("\"kubernetes.io/service-name\":\"a\"", "\"kubernetes.io/service-name\":\"thief\"");
        assert_eq!(
            read(&object_version(&thief).unwrap(), &thief).unwrap().workload,
            None,
            "anyone can write the labels alone"
        );
        let found: Vec<_> = slice.endpoints.iter().map(|e| (&*e.uid, e.address.to_string(), e.state)).collect();
        let expected =
            [("p2", "10.0.0.2:8888", EndpointState::Leaving), ("10.0.0.4", "10.0.0.4:8888", EndpointState::Ready)];
        assert!(found.iter().map(|(uid, at, state)| (*uid, at.as_str(), *state)).eq(expected));
    }

    #[test]
    fn a_slice_without_our_port_or_kind_leads_nowhere() {
        let json = r#"{"metadata":{"name":"a-x","resourceVersion":"7","labels":{"recif.dev/tool":"a"}},
            "ports":[{"name":"grpc","port":1}],"endpoints":[{"addresses":["10.0.0.1"]}]}"#;
        assert_eq!(read(&object_version(json).unwrap(), json).unwrap(), WorkloadEndpoints::default());
        let bare = r#"{"metadata":{"name":"a","resourceVersion":"7"},"ports":null,"endpoints":null}"#;
        assert_eq!(read(&object_version(bare).unwrap(), bare).unwrap(), WorkloadEndpoints::default());
    }
}
