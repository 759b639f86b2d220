//! Table of the kinds that the API server keeps, read from its discovery.

use std::collections::BTreeMap;

use kube::{
    Client,
    core::ApiResource,
    discovery::{Discovery, Scope, verbs},
};

/// Kinds that are kept and that nothing acts on: the rules of a network and of nodes.
const WITHOUT_EFFECT: [&str; 2] = ["NetworkPolicy", "PodDisruptionBudget"];

/// Kind of the API server.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// Group, version and plural of its paths.
    pub(crate) resource: ApiResource,
    /// Set if its objects are in namespaces.
    pub(crate) namespaced: bool,
    /// Set if something acts on its objects.
    pub(crate) has_effect: bool,
}

/// Kinds of the API server by apiVersion and kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds(BTreeMap<(String, String), Kind>);

impl Kinds {
    /// Reads the kinds whose objects can be written.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn discover(client: &Client) -> Result<Self, kube::Error> {
        let discovery = Discovery::new(client.clone()).run_aggregated().await?;
        let mut kinds = Self::default();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                if capabilities.supports_operation(verbs::PATCH) {
                    kinds.add(resource, capabilities.scope == Scope::Namespaced);
                }
            }
        }
        Ok(kinds)
    }

    /// Adds a kind.
    pub(crate) fn add(&mut self, resource: ApiResource, namespaced: bool) {
        let has_effect = !WITHOUT_EFFECT.contains(&resource.kind.as_str());
        let name = (resource.api_version.clone(), resource.kind.clone());
        self.0.insert(name, Kind { resource, namespaced, has_effect });
    }

    /// Returns a kind; `None` if it is not kept.
    pub(crate) fn get(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.0.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// Returns the apiVersion under which a kind is known, if it is known under another one of the same group.
    pub(crate) fn other_version(&self, api_version: &str, kind: &str) -> Option<&str> {
        let group = |version: &str| version.rsplit_once('/').map(|(group, _)| group.to_owned());
        let same = |(known, name): &&(String, String)| name == kind && group(known) == group(api_version);
        self.0.keys().find(same).map(|(known, _)| known.as_str())
    }
}

#[cfg(test)]
pub(crate) fn example() -> Kinds {
    use kube::core::GroupVersionKind;

    let mut kinds = Kinds::default();
    for (group, kind, plural) in [
        ("", "ConfigMap", "configmaps"),
        ("", "Secret", "secrets"),
        ("", "Service", "services"),
        ("apps", "Deployment", "deployments"),
        ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    ] {
        kinds.add(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural), true);
    }
    for kind in crds::KINDS {
        let gvk = GroupVersionKind::gvk(crds::GROUP, crds::VERSION, kind.name);
        kinds.add(ApiResource::from_gvk_with_plural(&gvk, kind.plural), true);
    }
    kinds.add(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces"), false);
    kinds
}
