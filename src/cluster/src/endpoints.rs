//! Reduces the EndpointSlices of one Service to the addresses behind it.
//!
//! Such a Service publishes Pods that are not ready too: one that is shutting down still holds requests.
//!
//! A slice has the labels of its Service, and its maker may write into it what it likes. So only those count that Kubernetes' own
//! controller made for the Service of the name that is meant.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use serde::Deserialize;

use super::store::Head;

/// Reads a slice: who is published or serves. Nobody, when it belongs to another Service.
///
/// # Errors
/// When it does not look like one.
pub fn addresses(service: &str, _: &Head, json: &str) -> Result<Vec<SocketAddr>, serde_json::Error> {
    let slice: Slice = serde_json::from_str(json)?;
    if slice.metadata.service(service).is_none() {
        return Ok(Vec::new());
    }
    let Some(port) = slice.ports.iter().flatten().find_map(|port| port.port) else { return Ok(Vec::new()) };
    let published = slice.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.counts());
    let addresses = published.flat_map(|endpoint| &endpoint.addresses).filter_map(|text| text.parse::<IpAddr>().ok());
    Ok(addresses.map(|ip| SocketAddr::new(ip, port)).collect())
}

/// What a slice says of where it comes from.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceMeta {
    /// Its labels, those of its Service among them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: Box<str>,
    #[serde(default)]
    controller: bool,
}

impl SliceMeta {
    /// The uid of the Service of this name, if Kubernetes made the slice for it.
    pub fn service(&self, name: &str) -> Option<&str> {
        let label = |key: &str| self.labels.get(key).map(String::as_str);
        let made = label("endpointslice.kubernetes.io/managed-by") == Some("endpointslice-controller.k8s.io");
        let owner = self.owner_references.iter().find(|owner| owner.controller)?;
        let is_service = owner.api_version == "v1" && owner.kind == "Service" && owner.name == name;
        (made && is_service && label("kubernetes.io/service-name") == Some(name)).then_some(&owner.uid)
    }
}

#[derive(Deserialize)]
struct Slice {
    metadata: SliceMeta,
    // Both are null in slices of Services without Pods.
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Deserialize, Default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
}

impl Conditions {
    /// Without a word it is ready.
    fn counts(&self) -> bool {
        self.ready != Some(false) || self.serving == Some(true)
    }
}

#[derive(Deserialize)]
struct Port {
    #[serde(default)]
    port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::head;

    fn read(service: &str, rest: &str) -> Vec<SocketAddr> {
        let json = format!(
            r#"{{"metadata":{{"name":"s-1","namespace":"ns","uid":"u","resourceVersion":"1",
            "labels":{{"kubernetes.io/service-name":"s",
            "endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}},
            "ownerReferences":[{{"apiVersion":"v1","kind":"Service","name":"s","uid":"su","controller":true}}]}},{rest}}}"#
        );
        addresses(service, &head(&json).unwrap(), &json).unwrap()
    }

    #[test]
    fn whoever_is_published_or_serves_is_found() {
        let slice = r#""ports":[{"name":"admin","port":8081}],"endpoints":[
            {"addresses":["10.0.0.1"],"conditions":{"ready":true,"serving":true}},
            {"addresses":["10.0.0.2"],"conditions":{"ready":false,"serving":true,"terminating":true}},
            {"addresses":["10.0.0.3"],"conditions":{"ready":false,"serving":false}},
            {"addresses":["10.0.0.5"],"conditions":{"ready":true,"serving":false,"terminating":true}},
            {"addresses":["fd00::4"]}]"#;
        let found: Vec<_> = read("s", slice).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.1:8081", "10.0.0.2:8081", "10.0.0.5:8081", "[fd00::4]:8081"]);
        assert_eq!(read("other", slice), []);
        assert_eq!(read("s", r#""ports":null,"endpoints":null"#), []);
    }

    #[test]
    fn only_slices_that_kubernetes_made_for_the_service_count() {
        let made = |by: &str, service: &str, owner: &str| {
            let json = format!(
                r#"{{"labels":{{"kubernetes.io/service-name":"{service}","endpointslice.kubernetes.io/managed-by":"{by}"}},
                "ownerReferences":[{{"apiVersion":"apps/v1","kind":"Deployment","name":"s","uid":"du"}},{owner}]}}"#
            );
            serde_json::from_str::<SliceMeta>(&json).unwrap().service("s").map(str::to_owned)
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
        assert_eq!(serde_json::from_str::<SliceMeta>("{}").unwrap().service("s"), None);
    }
}
