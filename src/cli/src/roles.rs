//! Roles and ClusterRoles of a manifest, as single permissions. `recif doctor` reviews them in a cluster, and a test compares
//! them with the requests in the code.

use serde::Deserialize;
use serde_yaml::{Deserializer, Error, Value};

/// Role or ClusterRole of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleManifest {
    /// Name of the object.
    pub name: String,
    /// True for a Role, which gives its permissions in its own namespace; false for a ClusterRole.
    pub is_namespaced: bool,
    /// Permissions, in the order of the rules.
    pub permissions: Vec<Permission>,
}

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// Verb, such as `get`.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural of the resource, followed by `/` and the subresource if it is one.
    pub resource: String,
    /// Name of the object; empty for all objects.
    pub name: String,
}

/// Rule of a role. Fields are required, so that a rule on other things than resources is an error.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyRule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// Returns the Roles and ClusterRoles of a manifest of one or more YAML documents; objects of other kinds are passed over.
///
/// # Errors
/// A document is not YAML, or a rule does not name its API groups, resources and verbs.
pub fn roles(manifest: &str) -> Result<Vec<RoleManifest>, Error> {
    let mut roles = Vec::new();
    for document in Deserializer::from_str(manifest) {
        let object = Value::deserialize(document)?;
        let kind = object["kind"].as_str().unwrap_or_default();
        if !["Role", "ClusterRole"].contains(&kind) {
            continue;
        }
        let rules: Vec<PolicyRule> = serde_yaml::from_value(object["rules"].clone())?;
        roles.push(RoleManifest {
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            is_namespaced: kind == "Role",
            permissions: rules.iter().flat_map(permissions).collect(),
        });
    }
    Ok(roles)
}

fn permissions(rule: &PolicyRule) -> Vec<Permission> {
    let every = [String::new()];
    let names = if rule.resource_names.is_empty() { every.as_slice() } else { &rule.resource_names };
    let mut permissions = Vec::new();
    for ((group, resource), (verb, name)) in
        pairs(&rule.api_groups, &rule.resources).flat_map(|of| pairs(&rule.verbs, names).map(move |what| (of, what)))
    {
        let [verb, group, resource, name] = [verb, group, resource, name].map(Clone::clone);
        permissions.push(Permission { verb, group, resource, name });
    }
    permissions
}

fn pairs<'v>(left: &'v [String], right: &'v [String]) -> impl Iterator<Item = (&'v String, &'v String)> {
    left.iter().flat_map(move |one| right.iter().map(move |other| (one, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_gives_each_verb_on_each_resource_and_name() {
        let manifest = "kind: ServiceAccount\n---\nkind: Role\nmetadata: { name: r }\nrules:\n  - apiGroups: ['']\n    \
                        resources: [secrets]\n    resourceNames: [a, b]\n    verbs: [get, watch]\n---\n\
                        kind: ClusterRole\nmetadata: { name: c }\nrules:\n  - apiGroups: [apps]\n    \
                        resources: [deployments/scale]\n    verbs: [patch]\n";
        let found = roles(manifest).unwrap();
        let told = |role: &RoleManifest| -> Vec<String> {
            let text = |one: &Permission| format!("{} {}|{}|{}", one.verb, one.group, one.resource, one.name);
            role.permissions.iter().map(text).collect()
        };
        assert_eq!((found.len(), found[0].name.as_str(), found[0].is_namespaced), (2, "r", true));
        assert_eq!(told(&found[0]), ["get |secrets|a", "get |secrets|b", "watch |secrets|a", "watch |secrets|b"]);
        assert_eq!((found[1].name.as_str(), found[1].is_namespaced), ("c", false));
        assert_eq!(told(&found[1]), ["patch apps|deployments/scale|"]);
    }

    #[test]
    fn a_rule_on_other_things_than_resources_is_an_error() {
        let manifest =
            "kind: ClusterRole\nmetadata: { name: c }\nrules: [{ nonResourceURLs: [/metrics], verbs: [get] }]\n";
        assert!(roles(manifest).is_err());
    }
}
