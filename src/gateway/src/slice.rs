//! An EndpointSlice of one of our Services, reduced to where its Pods are and how they are.

use std::net::{IpAddr, SocketAddr};

use cluster::{Head, cache::workload_label, endpoints::SliceMeta, resource::Resource};
use serde::Deserialize;

use super::object::Kind;

/// Where EndpointSlices are.
pub(super) const RESOURCE: Resource =
    Resource { kind: "EndpointSlice", root: "/apis/discovery.k8s.io/v1", plural: "endpointslices" };
/// Kubernetes gives a slice the labels of its Service.
pub(super) const LABELS: &str = "app.kubernetes.io/managed-by=recif-operator";

/// The Pods of one slice.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The workload, if it is one that is routed and Kubernetes made this for the Service of its name.
    pub workload: Option<(Kind, Box<str>)>,
    /// The uid of that Service. The workload says whether it is its own.
    pub service: Box<str>,
    /// Its Pods that have an address.
    pub endpoints: Box<[Endpoint]>,
}

/// A Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The Pod's uid.
    pub uid: Box<str>,
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether it takes requests.
    pub standing: Standing,
}

/// Whether a Pod takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// No, and it is going.
    Gone,
    /// Not yet, or not at the moment.
    Unready,
    /// It is going, and still serves: used when nobody is ready.
    Leaving,
    /// Yes.
    Ready,
}

/// Reads a slice.
///
/// # Errors
/// When it does not look like one.
pub(super) fn read(_: &Head, json: &str) -> Result<Slice, serde_json::Error> {
    let wire: Wire = serde_json::from_str(json)?;
    let found = Kind::ALL.into_iter().find_map(|kind| {
        let name = wire.metadata.labels.get(&workload_label(kind.name()))?;
        let service = wire.metadata.service(name)?;
        Some(((kind, name.as_str().into()), service.into()))
    });
    let (workload, service) = found.unzip();
    let mut ports = wire.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some("http")).and_then(|port| port.port);
    let endpoints = wire.endpoints.into_iter().flatten().filter_map(|endpoint| endpoint.read(port?));
    Ok(Slice { workload, service: service.unwrap_or_default(), endpoints: endpoints.collect() })
}

#[derive(Deserialize)]
struct Wire {
    metadata: SliceMeta,
    // A list without elements is null.
    #[serde(default)]
    endpoints: Option<Vec<WireEndpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    #[serde(default)]
    target_ref: Option<Target>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Deserialize)]
struct Target {
    #[serde(default)]
    uid: Option<Box<str>>,
}

impl WireEndpoint {
    fn read(self, port: u16) -> Option<Endpoint> {
        // An address that is a name is of no Pod.
        let ip: IpAddr = self.addresses.first()?.parse().ok()?;
        let Conditions { ready, serving, terminating } = self.conditions;
        // Absent means ready (the API's own words).
        let standing = match (ready.unwrap_or(true), serving.unwrap_or(ready.unwrap_or(true)), terminating) {
            (true, ..) => Standing::Ready,
            (false, true, Some(true)) => Standing::Leaving,
            (false, _, Some(true)) => Standing::Gone,
            _ => Standing::Unready,
        };
        let uid = self.target_ref.and_then(|target| target.uid).unwrap_or_else(|| ip.to_string().into());
        Some(Endpoint { uid, address: SocketAddr::new(ip, port), standing })
    }
}

#[cfg(test)]
mod tests {
    use cluster::decode::head;

    use super::*;

    #[test]
    fn a_slice_says_where_the_pods_of_which_workload_are() {
        let json = r#"{"metadata":{"name":"a-x","namespace":"ns","uid":"u","resourceVersion":"7",
            "labels":{"recif.dev/flowset":"a","kubernetes.io/service-name":"a",
            "endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"},
            "ownerReferences":[{"apiVersion":"v1","kind":"Service","name":"a","uid":"s","controller":true}]},
            "addressType":"IPv4",
            "ports":[{"name":"other","port":1},{"name":"http","port":8888}],"endpoints":[
            {"addresses":["10.0.0.1"],"targetRef":{"kind":"Pod","uid":"p1"},"conditions":{"ready":true}},
            {"addresses":["10.0.0.2"],"targetRef":{"kind":"Pod","uid":"p2"},
             "conditions":{"ready":false,"serving":true,"terminating":true}},
            {"addresses":["10.0.0.3"],"conditions":{"ready":false,"serving":false,"terminating":true}},
            {"addresses":["10.0.0.5"],"targetRef":{"kind":"Pod","uid":"p5"},"conditions":{"ready":false,"serving":false}},
            {"addresses":["10.0.0.4"]},{"addresses":["a.example"]},{"addresses":[]}]}"#;
        let slice = read(&head(json).unwrap(), json).unwrap();
        assert_eq!((slice.workload, &*slice.service), (Some((Kind::FlowSet, "a".into())), "s"));
        let thief = json.replace("\"kubernetes.io/service-name\":\"a\"", "\"kubernetes.io/service-name\":\"thief\"");
        assert_eq!(read(&head(&thief).unwrap(), &thief).unwrap().workload, None, "the labels alone are anybody's");
        let found: Vec<_> = slice.endpoints.iter().map(|e| (&*e.uid, e.address.to_string(), e.standing)).collect();
        let expected = [
            ("p1", "10.0.0.1:8888", Standing::Ready),
            ("p2", "10.0.0.2:8888", Standing::Leaving),
            ("10.0.0.3", "10.0.0.3:8888", Standing::Gone),
            ("p5", "10.0.0.5:8888", Standing::Unready),
            ("10.0.0.4", "10.0.0.4:8888", Standing::Ready),
        ];
        assert!(found.iter().map(|(uid, at, standing)| (*uid, at.as_str(), *standing)).eq(expected));
    }

    #[test]
    fn a_slice_without_our_port_or_kind_leads_nowhere() {
        let json = r#"{"metadata":{"name":"a-x","resourceVersion":"7","labels":{"recif.dev/tool":"a"}},
            "ports":[{"name":"grpc","port":1}],"endpoints":[{"addresses":["10.0.0.1"]}]}"#;
        assert_eq!(read(&head(json).unwrap(), json).unwrap(), Slice::default());
        let bare = r#"{"metadata":{"name":"a","resourceVersion":"7"},"ports":null,"endpoints":null}"#;
        assert_eq!(read(&head(bare).unwrap(), bare).unwrap(), Slice::default());
    }
}
