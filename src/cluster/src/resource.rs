//! Paths of the kinds in the Kubernetes API.

use std::{borrow::Cow, fmt::Write as _};

use actions::ports::ChildKind;
use crds::{CustomObject, Tool};

/// Path of our API group and version.
const CUSTOM_ROOT: &str = "/apis/agents.recif.dev/v1";

/// Kind and its path in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// The kind, such as `Agent`.
    pub kind: &'static str,
    /// Everything before the namespace, such as `/apis/apps/v1`.
    pub root: &'static str,
    /// The plural, such as `deployments`.
    pub plural: &'static str,
}

impl Resource {
    /// `namespaces`.
    pub const NAMESPACE: Self = Self { kind: "Namespace", root: "/api/v1", plural: "namespaces" };
    /// `rolebindings`.
    pub const ROLE_BINDING: Self =
        Self { kind: "RoleBinding", root: "/apis/rbac.authorization.k8s.io/v1", plural: "rolebindings" };
    /// `pods`.
    pub const POD: Self = Self { kind: "Pod", root: "/api/v1", plural: "pods" };
    /// `secrets`.
    pub const SECRET: Self = Self { kind: "Secret", root: "/api/v1", plural: "secrets" };
    /// `leases`.
    pub const LEASE: Self = Self { kind: "Lease", root: "/apis/coordination.k8s.io/v1", plural: "leases" };
    /// `endpointslices`.
    pub const ENDPOINT_SLICE: Self =
        Self { kind: "EndpointSlice", root: "/apis/discovery.k8s.io/v1", plural: "endpointslices" };
    /// `events` of `events.k8s.io`.
    pub const EVENT: Self = Self { kind: "Event", root: "/apis/events.k8s.io/v1", plural: "events" };

    /// `tokenreviews`.
    pub const TOKEN_REVIEW: Self =
        Self { kind: "TokenReview", root: "/apis/authentication.k8s.io/v1", plural: "tokenreviews" };
    /// `subjectaccessreviews`.
    pub const SUBJECT_ACCESS_REVIEW: Self =
        Self { kind: "SubjectAccessReview", root: "/apis/authorization.k8s.io/v1", plural: "subjectaccessreviews" };

    /// Returns the address of a kind of ours.
    pub const fn of<K: CustomObject>() -> Self {
        Self { kind: K::KIND, root: CUSTOM_ROOT, plural: K::PLURAL }
    }

    /// Returns the resource of a kind of our group, by the kind's name.
    pub fn custom(kind: &'static str) -> Option<Self> {
        let known = crds::KINDS.iter().find(|known| known.name == kind)?;
        Some(Self { kind, root: CUSTOM_ROOT, plural: known.plural })
    }

    /// Returns the resource of a kind of children.
    pub fn child(kind: ChildKind) -> Self {
        let (root, plural) = match kind {
            ChildKind::ServiceAccount => ("/api/v1", "serviceaccounts"),
            ChildKind::ConfigMap => ("/api/v1", "configmaps"),
            ChildKind::Secret => ("/api/v1", "secrets"),
            ChildKind::Service => ("/api/v1", "services"),
            ChildKind::NetworkPolicy => ("/apis/networking.k8s.io/v1", "networkpolicies"),
            ChildKind::PodDisruptionBudget => ("/apis/policy/v1", "poddisruptionbudgets"),
            ChildKind::Deployment => ("/apis/apps/v1", "deployments"),
            ChildKind::Tool => (CUSTOM_ROOT, Tool::PLURAL),
        };
        Self { kind: kind.as_str(), root, plural }
    }

    /// Reports whether only the metadata of its objects are requested.
    pub fn is_metadata_only(&self) -> bool {
        *self == Self::NAMESPACE
    }

    /// Returns the path of all objects, or of those of one namespace.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/namespaces/{}/{}", self.root, encoded(namespace), self.plural),
            None => format!("{}/{}", self.root, self.plural),
        }
    }

    /// Returns the path of one object. An empty namespace: the kind is cluster-scoped.
    pub fn object(&self, namespace: &str, name: &str) -> String {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        format!("{}/{}", self.collection(namespace), encoded(name))
    }
}

/// Percent-encodes a text (RFC 3986, 2.1) as one segment of a path or one value of a query: names that users write in `valueFrom` reach
/// request paths, and must not lead anywhere else.
fn encoded(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    // A dot segment leads upwards.
    let is_dots = text == "." || text == "..";
    if text.bytes().all(is_plain) && !is_dots {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        if is_plain(byte) && !is_dots {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    Cow::Owned(encoded)
}

/// Path with query parameters; values are percent-encoded.
#[derive(Debug)]
pub struct RequestTarget(String);

impl RequestTarget {
    /// Starts with the bare path.
    pub fn new(path: String) -> Self {
        Self(path)
    }

    /// Adds a query parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&encoded(value));
        self
    }

    /// Returns path and query.
    pub fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_kinds_are_where_their_definitions_put_them() {
        assert_eq!(Resource::of::<Tool>(), Resource::child(ChildKind::Tool));
        for kind in crds::KINDS {
            let here = Resource::custom(kind.name).unwrap();
            assert_eq!((here.root, here.plural), (format!("/apis/{}", kind.api_version()).as_str(), kind.plural));
        }
    }

    #[test]
    fn a_name_leads_nowhere_but_to_its_object() {
        let path = |name: &str| Resource::child(ChildKind::Secret).object("ns", name);
        assert_eq!(path("a.b-c"), "/api/v1/namespaces/ns/secrets/a.b-c");
        assert_eq!(path("../configmaps/b?x#y z"), "/api/v1/namespaces/ns/secrets/..%2Fconfigmaps%2Fb%3Fx%23y%20z");
        assert_eq!(path(".."), "/api/v1/namespaces/ns/secrets/%2E%2E");
        assert_eq!(path("ä%2F"), "/api/v1/namespaces/ns/secrets/%C3%A4%252F");
        assert_eq!(Resource::NAMESPACE.object("", "team"), "/api/v1/namespaces/team");
        let elsewhere = Resource::of::<Tool>().collection(Some("a/agents/b?"));
        assert_eq!(elsewhere, "/apis/agents.recif.dev/v1/namespaces/a%2Fagents%2Fb%3F/tools");
    }

    #[test]
    fn selectors_are_encoded() {
        let target = RequestTarget::new(Resource::POD.collection(Some("a")))
            .with("labelSelector", "x/y=z")
            .with("watch", "true");
        assert_eq!(target.into_string(), "/api/v1/namespaces/a/pods?labelSelector=x%2Fy%3Dz&watch=true");
    }
}
