//! Reduces the EndpointSlices of one Service to the addresses behind it.
//!
//! Such a Service publishes Pods that are not ready too: one that is shutting down still holds requests.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

use super::store::Head;

/// Reads a slice: who is published or serves. Nobody, when it belongs to another Service.
///
/// # Errors
/// When it does not look like one.
pub fn addresses(service: &str, _: &Head, json: &str) -> Result<Vec<SocketAddr>, serde_json::Error> {
    let slice: Slice = serde_json::from_str(json)?;
    if slice.metadata.labels.service.as_deref() != Some(service) {
        return Ok(Vec::new());
    }
    let Some(port) = slice.ports.iter().flatten().find_map(|port| port.port) else { return Ok(Vec::new()) };
    let published = slice.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.counts());
    let addresses = published.flat_map(|endpoint| &endpoint.addresses).filter_map(|text| text.parse::<IpAddr>().ok());
    Ok(addresses.map(|ip| SocketAddr::new(ip, port)).collect())
}

#[derive(Deserialize)]
struct Slice {
    metadata: Meta,
    // Both are null in slices of Services without Pods.
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    labels: Labels,
}

#[derive(Deserialize, Default)]
struct Labels {
    /// The Service of the slice.
    #[serde(rename = "kubernetes.io/service-name")]
    service: Option<String>,
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
    use crate::cluster::decode::head;

    fn read(service: &str, rest: &str) -> Vec<SocketAddr> {
        let json = format!(
            r#"{{"metadata":{{"name":"s-1","namespace":"ns","uid":"u","resourceVersion":"1",
            "labels":{{"kubernetes.io/service-name":"s"}}}},{rest}}}"#
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
}
