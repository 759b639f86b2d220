//! The ConfigMaps and Secrets that a Pod reads.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client};

use crate::{config_error::ConfigError, pod_spec::containers};

/// Data of an object by key.
pub(crate) type Data = BTreeMap<String, Vec<u8>>;

/// Label by which the operator marks its own objects.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// ConfigMaps and Secrets of one namespace that were read; one that is not in it does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) config_maps: BTreeMap<String, Data>,
    pub(crate) secrets: BTreeMap<String, Data>,
    /// Those that the operator rendered, each with whether it is a Secret.
    pub(crate) rendered: BTreeSet<(bool, String)>,
}

impl Objects {
    /// Returns the data of a ConfigMap.
    pub(crate) fn config_map(&self, name: &str) -> Option<&Data> {
        self.config_maps.get(name)
    }

    /// Returns the data of a Secret.
    pub(crate) fn secret(&self, name: &str) -> Option<&Data> {
        self.secrets.get(name)
    }

    /// Reads everything that a Pod refers to.
    ///
    /// # Errors
    /// [`ConfigError::Other`]: the API server gave an error.
    pub(crate) async fn of(pod: &Pod, client: &Client) -> Result<Self, ConfigError> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let other = |error: kube::Error| ConfigError::Other(error.to_string());
        let (map_names, secret_names) = names(pod);
        let mut found = Self::default();
        let is_ours = |labels: Option<&BTreeMap<String, String>>| {
            labels.and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == crds::MANAGED_BY)
        };
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        for name in map_names {
            let Some(map) = maps.get_opt(&name).await.map_err(other)? else { continue };
            if is_ours(map.metadata.labels.as_ref()) {
                found.rendered.insert((false, name.clone()));
            }
            let texts = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
            let bytes = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
            found.config_maps.insert(name, texts.chain(bytes).collect());
        }
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        for name in secret_names {
            let Some(secret) = secrets.get_opt(&name).await.map_err(other)? else { continue };
            if is_ours(secret.metadata.labels.as_ref()) {
                found.rendered.insert((true, name.clone()));
            }
            let bytes = secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
            found.secrets.insert(name, bytes.collect());
        }
        Ok(found)
    }
}

/// Returns the names of the ConfigMaps and of the Secrets that a Pod refers to.
fn names(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let Some(spec) = &pod.spec else { return (maps, secrets) };
    for container in containers(spec) {
        for source in container.env_from.iter().flatten() {
            maps.extend(source.config_map_ref.iter().map(|map| map.name.clone()));
            secrets.extend(source.secret_ref.iter().map(|secret| secret.name.clone()));
        }
        for from in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            maps.extend(from.config_map_key_ref.iter().map(|map| map.name.clone()));
            secrets.extend(from.secret_key_ref.iter().map(|secret| secret.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        maps.extend(volume.config_map.iter().map(|map| map.name.clone()));
        secrets.extend(volume.secret.iter().filter_map(|secret| secret.secret_name.clone()));
        for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            maps.extend(source.config_map.iter().map(|map| map.name.clone()));
            secrets.extend(source.secret.iter().map(|secret| secret.name.clone()));
        }
    }
    (maps, secrets)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_read_that_a_pod_refers_to() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": {}, "spec": {
            "initContainers": [{ "name": "i", "envFrom": [{ "configMapRef": { "name": "m1" } }] }],
            "containers": [{ "name": "c",
                "envFrom": [{ "secretRef": { "name": "s1" } }],
                "env": [
                    { "name": "A", "valueFrom": { "configMapKeyRef": { "name": "m2", "key": "k" } } },
                    { "name": "B", "valueFrom": { "secretKeyRef": { "name": "s2", "key": "k" } } },
                ] }],
            "volumes": [
                { "name": "a", "configMap": { "name": "m3" } },
                { "name": "b", "secret": { "secretName": "s3" } },
                { "name": "c", "projected": { "sources": [{ "configMap": { "name": "m4" } }, { "secret": { "name": "s4" } }] } },
            ],
        } }))
        .unwrap();
        let (maps, secrets) = names(&pod);
        assert!(maps.iter().eq(["m1", "m2", "m3", "m4"]), "{maps:?}");
        assert!(secrets.iter().eq(["s1", "s2", "s3", "s4"]), "{secrets:?}");
    }
}
