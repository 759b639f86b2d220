//! URL paths of the API.

use percent_encoding::percent_decode_str;

use crate::{kinds::Kind, target::Target};

/// Endpoint that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiRoute {
    /// A resource, a collection or a subresource.
    Resource(Target),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`; the group, and the version.
    Resources(String, String),
    /// `/version`.
    Version,
    /// `/livez`, `/readyz` and `/healthz`.
    Health,
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApi,
    /// `/openapi/v3/PATH`, of the paths below `PATH`, such as `apis/apps/v1`.
    OpenApiOf(String),
}

/// Returns what a path names; none if it names nothing.
pub(crate) fn route(kinds: &[Kind], path: &str) -> Option<ApiRoute> {
    let decoded: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| percent_decode_str(part).decode_utf8().ok().map(std::borrow::Cow::into_owned))
        .collect::<Option<_>>()?;
    let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["api"] => Some(ApiRoute::CoreVersions),
        ["apis"] => Some(ApiRoute::Groups),
        ["version"] => Some(ApiRoute::Version),
        ["openapi", "v2"] => Some(ApiRoute::OpenApiV2),
        ["openapi", "v3"] => Some(ApiRoute::OpenApi),
        ["openapi", "v3", rest @ ..] => Some(ApiRoute::OpenApiOf(rest.join("/"))),
        ["livez" | "readyz" | "healthz", ..] => Some(ApiRoute::Health),
        ["apis", group] => Some(ApiRoute::Group((*group).to_owned())),
        ["api", version] => Some(ApiRoute::Resources(String::new(), (*version).to_owned())),
        ["apis", group, version] => Some(ApiRoute::Resources((*group).to_owned(), (*version).to_owned())),
        ["api", version, rest @ ..] => resource(kinds, "", version, rest).map(ApiRoute::Resource),
        ["apis", group, version, rest @ ..] => resource(kinds, group, version, rest).map(ApiRoute::Resource),
        _ => None,
    }
}

fn resource(kinds: &[Kind], group: &str, version: &str, parts: &[&str]) -> Option<Target> {
    let (namespace, parts) = match parts {
        // The namespace itself.
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", parts),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        _ => ("", parts),
    };
    let (plural, name, subresource) = match *parts {
        [plural] => (plural, "", ""),
        [plural, name] => (plural, name, ""),
        [plural, name, subresource] => (plural, name, subresource),
        _ => return None,
    };
    let is_named = |kind: &Kind| kind.group == group && kind.version == version && kind.plural == plural;
    let kind = kinds.iter().position(is_named)?;
    let traits = kinds[kind].traits;
    if traits.cluster && !namespace.is_empty() || !traits.cluster && namespace.is_empty() && !name.is_empty() {
        return None;
    }
    let has = match subresource {
        "" => true,
        "status" => traits.status,
        "scale" => kinds[kind].scale().is_some(),
        "log" => kinds[kind].name == "Pod",
        _ => false,
    };
    has.then(|| Target {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::all;

    #[test]
    fn a_path_names_a_resource_in_a_namespace_or_none() {
        let kinds = all();
        let named = |path: &str| match route(kinds, path) {
            Some(ApiRoute::Resource(target)) => {
                let Target { kind, namespace, name, subresource } = target;
                Some(format!("{} {namespace} {name} {subresource}", kinds[kind].name))
            }
            _ => None,
        };
        let cases = [
            ("/api/v1/namespaces", Some("Namespace   ")),
            ("/api/v1/namespaces/a", Some("Namespace  a ")),
            ("/api/v1/namespaces/a/status", Some("Namespace  a status")),
            ("/api/v1/namespaces/a/pods", Some("Pod a  ")),
            ("/api/v1/namespaces/a/pods/b", Some("Pod a b ")),
            ("/api/v1/namespaces/a/pods/b/status", Some("Pod a b status")),
            ("/api/v1/pods", Some("Pod   ")),
            ("/api/v1/namespaces/a/pods/b/log", Some("Pod a b log")),
            ("/api/v1/namespaces/a/services/b/log", None),
            ("/apis/apps/v1/namespaces/a/deployments/b/scale", Some("Deployment a b scale")),
            ("/apis/agents.recif.dev/v1/namespaces/a/agents/b%2Dc/scale", Some("Agent a b-c scale")),
            ("/apis/agents.recif.dev/v1/namespaces/a/models/b/scale", None),
            ("/apis/events.k8s.io/v1/events", Some("Event   ")),
            ("/api/v1/pods/b", None),
            ("/api/v1/namespaces/a/namespaces", None),
            ("/api/v2/pods", None),
            ("/apis/apps/v1/namespaces/a/pods", None),
            ("/api/v1/namespaces/a/configmaps/b/status", None),
            ("/api/v1/namespaces/a/pods/b/status/c", None),
            ("/api/v1/namespaces/a/pods/%ff", None),
            ("/", None),
        ];
        for (path, expected) in cases {
            assert_eq!(named(path).as_deref(), expected, "{path}");
        }
    }
}
