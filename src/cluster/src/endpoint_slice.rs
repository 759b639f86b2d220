//! Decodes an EndpointSlice: its Service, and the addresses and states of the Pods behind that.
//!
//! A slice has the labels of its Service, and its creator may write anything into it. So [`EndpointSlice::service`] names a Service only
//! where Kubernetes' own controller made the slice for it.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;

/// EndpointSlice (`discovery.k8s.io/v1`), reduced.
#[derive(Debug, Deserialize)]
pub struct EndpointSlice {
    metadata: SliceMeta,
    // An empty list is null.
    #[serde(default)]
    endpoints: Option<Vec<WireEndpoint>>,
    #[serde(default)]
    ports: Option<Vec<SlicePort>>,
}

/// Pod behind the Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointAddress {
    /// First of its addresses.
    pub ip: IpAddr,
    /// The Pod's uid; the address where the slice names none.
    pub uid: Box<str>,
    /// Readiness for requests.
    pub state: EndpointState,
}

/// Readiness of a Pod for requests, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointState {
    /// Terminating, and no longer serving.
    Gone,
    /// Not ready yet, or not at the moment.
    Unready,
    /// Terminating, and still serving: used when no Pod is ready.
    Leaving,
    /// Ready.
    Ready,
}

impl EndpointSlice {
    /// Decodes an EndpointSlice.
    ///
    /// # Errors
    /// Fails if the JSON is no EndpointSlice.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Returns the labels of the slice, those of its Service among them.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.metadata.labels
    }

    /// Returns the uid of the Service of this name, if Kubernetes made the slice for it.
    pub fn service(&self, name: &str) -> Option<&str> {
        let label = |key: &str| self.labels().get(key).map(String::as_str);
        let made = label("endpointslice.kubernetes.io/managed-by") == Some("endpointslice-controller.k8s.io");
        let owner = self.metadata.owner_references.iter().find(|owner| owner.controller)?;
        let is_service = owner.api_version == "v1" && owner.kind == "Service" && owner.name == name;
        (made && is_service && label("kubernetes.io/service-name") == Some(name)).then_some(&owner.uid)
    }

    /// Returns the port of this name.
    pub fn port(&self, name: &str) -> Option<u16> {
        self.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name))?.port
    }

    /// Returns the first port of the slice.
    pub fn first_port(&self) -> Option<u16> {
        self.ports.iter().flatten().find_map(|port| port.port)
    }

    /// Returns the Pods that have an IP address.
    pub fn endpoints(&self) -> impl Iterator<Item = EndpointAddress> {
        self.endpoints.iter().flatten().filter_map(WireEndpoint::read)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceMeta {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<SliceOwner>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceOwner {
    api_version: String,
    kind: String,
    name: String,
    uid: Box<str>,
    #[serde(default)]
    controller: bool,
}

#[derive(Debug, Deserialize)]
struct SlicePort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: EndpointConditions,
    #[serde(default)]
    target_ref: Option<EndpointPod>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct EndpointConditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct EndpointPod {
    #[serde(default)]
    uid: Option<Box<str>>,
}

impl WireEndpoint {
    fn read(&self) -> Option<EndpointAddress> {
        // A host name as an address belongs to no Pod.
        let ip: IpAddr = self.addresses.first()?.parse().ok()?;
        let EndpointConditions { ready, serving, terminating } = self.conditions;
        // An absent condition means ready (the API's own words).
        let state = match (ready.unwrap_or(true), serving.unwrap_or(ready.unwrap_or(true)), terminating) {
            (true, ..) => EndpointState::Ready,
            (false, true, Some(true)) => EndpointState::Leaving,
            (false, _, Some(true)) => EndpointState::Gone,
            _ => EndpointState::Unready,
        };
        let uid = self.target_ref.as_ref().and_then(|target| target.uid.clone());
        Some(EndpointAddress { ip, uid: uid.unwrap_or_else(|| ip.to_string().into()), state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conditions_say_how_each_pod_is() {
        let json = r#"{"metadata":{},"ports":[{"name":"other","port":1},{"name":"http","port":8888}],"endpoints":[
            {"addresses":["10.0.0.1","10.0.0.9"],"targetRef":{"kind":"Pod","uid":"p1"},"conditions":{"ready":true}},
            {"addresses":["10.0.0.2"],"targetRef":{"kind":"Pod","uid":"p2"},
             "conditions":{"ready":false,"serving":true,"terminating":true}},
            {"addresses":["10.0.0.3"],"conditions":{"ready":false,"serving":false,"terminating":true}},
            {"addresses":["10.0.0.5"],"targetRef":{"kind":"Pod","uid":"p5"},"conditions":{"ready":false,"serving":false}},
            {"addresses":["fd00::4"]},{"addresses":["a.example"]},{"addresses":[]}]}"#;
        let slice = EndpointSlice::read(json).unwrap();
        assert_eq!((slice.port("http"), slice.port("grpc"), slice.first_port()), (Some(8888), None, Some(1)));
        let found: Vec<_> = slice.endpoints().map(|e| (e.uid.to_string(), e.ip.to_string(), e.state)).collect();
        let expected = [
            ("p1", "10.0.0.1", EndpointState::Ready),
            ("p2", "10.0.0.2", EndpointState::Leaving),
            ("10.0.0.3", "10.0.0.3", EndpointState::Gone),
            ("p5", "10.0.0.5", EndpointState::Unready),
            ("fd00::4", "fd00::4", EndpointState::Ready),
        ];
        assert!(found.iter().map(|(uid, ip, state)| (uid.as_str(), ip.as_str(), *state)).eq(expected), "{found:?}");
    }

    #[test]
    fn only_slices_that_kubernetes_made_for_the_service_count() {
        let made = |by: &str, service: &str, owner: &str| {
            let json = format!(
                r#"{{"metadata":{{
                "labels":{{"kubernetes.io/service-name":"{service}","endpointslice.kubernetes.io/managed-by":"{by}"}},
                "ownerReferences":[{{"apiVersion":"apps/v1","kind":"Deployment","name":"s","uid":"du"}},{owner}]}}}}"#
            );
            EndpointSlice::read(&json).unwrap().service("s").map(str::to_owned)
        };
        let controller = "endpointslice-controller.k8s.io";
        let owner = r#"{"apiVersion":"v1","kind":"Service","name":"s","uid":"su","controller":true}"#;
        assert_eq!(made(controller, "s", owner).as_deref(), Some("su"));
        for (by, service, owner) in [
            ("me", "s", owner.to_owned()),
            (controller, "thief", owner.to_owned()),
            (controller, "s", owner.replace("\"s\"", "\"thief\"")),
            (controller, "s", owner.replace("true", "false")),
            (controller, "s", owner.replace("Service", "Agent")),
            (controller, "s", owner.replace("v1", "agents.recif.dev/v1")),
        ] {
            assert_eq!(made(by, service, &owner), None, "{by} {service} {owner}");
        }
        assert_eq!(EndpointSlice::read(r#"{"metadata":{}}"#).unwrap().service("s"), None);
    }
}
