//! Discovery: the groups, versions and resources of the API, plain and
//! [aggregated](https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery); and `/version`.

use serde_json::{Value, json};

use crate::kinds::{Kind, Shape};

/// Media type of aggregated discovery.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

// Does not compile if k8s-openapi has another version.
k8s_openapi::k8s_if_1_36! {
    pub(crate) const MINOR: &str = "36";
}

/// Returns the version of the API that is served: the one whose types are used.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": format!("v1.{MINOR}.0"), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// Returns `/api`.
pub(crate) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1" }],
    })
}

/// Returns the groups but the core group, in the order of the table.
pub(crate) fn group_names(kinds: &[Kind]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        if !names.contains(&kind.group) {
            names.push(kind.group);
        }
    }
    names
}

fn group_body(name: &str) -> Value {
    let version = json!({ "groupVersion": format!("{name}/v1"), "version": "v1" });
    json!({ "name": name, "versions": [version], "preferredVersion": version })
}

/// Returns `/apis`.
pub(crate) fn groups(kinds: &[Kind]) -> Value {
    let groups: Vec<Value> = group_names(kinds).into_iter().map(group_body).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// Returns `/apis/GROUP`; none for a group that is not served.
pub(crate) fn group(kinds: &[Kind], name: &str) -> Option<Value> {
    group_names(kinds).contains(&name).then(|| {
        let mut body = group_body(name);
        body["kind"] = "APIGroup".into();
        body["apiVersion"] = "v1".into();
        body
    })
}

/// Returns the verbs of a kind.
pub(crate) fn verbs(kind: &Kind) -> &'static [&'static str] {
    match kind.shape {
        Shape::Review => &["create"],
        _ if kind.traits.read_only => &["get", "list", "watch"],
        _ if kind.name == "Namespace" => &["create", "delete", "get", "list", "patch", "update", "watch"],
        _ => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
}

/// Returns the subresources of a kind, each with group, version and kind of its objects, and verbs.
pub(crate) fn subresources(kind: &Kind) -> Vec<(&'static str, [&str; 3], &'static [&'static str])> {
    let verbs: &[&str] = if kind.traits.read_only { &["get"] } else { &["get", "patch", "update"] };
    let status = kind.traits.status.then_some(("status", [kind.group, kind.version, kind.name], verbs));
    let scale = kind.scale().map(|_| ("scale", ["autoscaling", "v1", "Scale"], verbs));
    let get: &[&str] = &["get"];
    let log = (kind.name == "Pod").then_some(("log", [kind.group, kind.version, kind.name], get));
    log.into_iter().chain(scale).chain(status).collect()
}

pub(crate) fn of<'a>(kinds: &'a [Kind], group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Kind> {
    kinds.iter().filter(move |kind| kind.group == group && kind.version == version)
}

/// Returns the resources of a version; none for one that is not served.
pub(crate) fn resources(kinds: &[Kind], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in of(kinds, group, version) {
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular(), "namespaced": !kind.traits.cluster,
            "kind": kind.name, "verbs": verbs(kind),
        });
        for (field, names) in [("shortNames", kind.short), ("categories", kind.categories)] {
            if !names.is_empty() {
                resource[field] = names.into();
            }
        }
        resources.push(resource);
        for (name, [group, version, object], verbs) in subresources(kind) {
            let mut resource = json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": !kind.traits.cluster,
                "kind": object, "verbs": verbs,
            });
            if group != kind.group {
                resource["group"] = group.into();
                resource["version"] = version.into();
            }
            resources.push(resource);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources })
    })
}

/// Returns the aggregated form of `/api` (the core group) or `/apis` (all others).
pub(crate) fn aggregated(kinds: &[Kind], is_core: bool) -> Value {
    let names = if is_core { vec![""] } else { group_names(kinds) };
    let groups: Vec<Value> = names
        .into_iter()
        .map(|name| {
            let resources: Vec<Value> = of(kinds, name, "v1").map(aggregated_resource).collect();
            let version = json!({ "version": "v1", "resources": resources, "freshness": "Current" });
            let metadata = if name.is_empty() { json!({}) } else { json!({ "name": name }) };
            json!({ "metadata": metadata, "versions": [version] })
        })
        .collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups })
}

fn aggregated_resource(kind: &Kind) -> Value {
    let response_kind = |[group, version, kind]: [&str; 3]| json!({ "group": group, "version": version, "kind": kind });
    let subresources: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|(name, object, verbs)| {
            json!({ "subresource": name, "responseKind": response_kind(object), "verbs": verbs })
        })
        .collect();
    let mut resource = json!({
        "resource": kind.plural, "responseKind": response_kind([kind.group, kind.version, kind.name]),
        "scope": if kind.traits.cluster { "Cluster" } else { "Namespaced" },
        "singularResource": kind.singular(), "verbs": verbs(kind),
    });
    for (field, names) in [("shortNames", kind.short), ("categories", kind.categories)] {
        if !names.is_empty() {
            resource[field] = names.into();
        }
    }
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}
