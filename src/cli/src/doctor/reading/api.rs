//! Reads of the API server, each with a deadline, and with what may not be read counted.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use crds::{CRD_SCHEMA, CRD_VERSION, GROUP, KINDS, VERSION};
use http::Method;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;

use super::views::{Definition, HelmRelease, NodeView, Scope};
use crate::{
    cluster::{PodError, ReadError, ServerTime, UserClient},
    error::CliError,
};

/// Reads by which the API server is measured.
const TIMED_READS: usize = 10;

/// Reason for which something was not read, as the rest of a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::doctor) enum Unread {
    /// The caller lacks the right.
    #[error("you may not {0}")]
    Forbidden(String),
    /// The API server does not serve the kind.
    #[error("the API server does not serve {0}")]
    NotServed(&'static str),
    /// Récif is not installed.
    #[error("not installed yet")]
    NotInstalled,
    /// Another failure.
    #[error("{0}")]
    Failed(String),
}

/// Result of a read.
pub(in crate::doctor) type Read<T> = Result<T, Unread>;

/// Reader of the API server.
pub(in crate::doctor) struct ApiReader<'a> {
    /// Client with the rights of the user.
    pub live: &'a UserClient,
    deadline: Duration,
    read: AtomicUsize,
    refused: AtomicUsize,
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMetadata,
    items: Vec<T>,
}

#[derive(Deserialize, Default)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl<'a> ApiReader<'a> {
    /// Returns a reader; each reading takes at most `deadline`.
    pub(super) fn new(live: &'a UserClient, deadline: Duration) -> Self {
        Self { live, deadline, read: AtomicUsize::new(0), refused: AtomicUsize::new(0) }
    }

    /// Reports whether every read was refused.
    pub(super) fn read_nothing(&self) -> bool {
        self.read.load(Ordering::Relaxed) == 0 && self.refused.load(Ordering::Relaxed) > 0
    }

    /// Returns the version of the API server.
    ///
    /// # Errors
    /// There is no API server, or it does not know the caller.
    pub(super) async fn version(&self) -> Result<String, CliError> {
        let asked = self.live.request::<Value>("read the version", Method::GET, "/version", None);
        let Ok(answer) = timeout(self.deadline, asked).await else {
            let why = format!("no answer within {} s", self.deadline.as_secs());
            return Err(CliError::Unreachable { part: "API server", why });
        };
        Ok(text(&answer?, "/gitVersion"))
    }

    /// Measures some reads, one after the other.
    pub(super) async fn times(&self) -> Read<Vec<ServerTime>> {
        self.within(async {
            let mut times = Vec::new();
            for _ in 0..TIMED_READS {
                let measured = self.live.measure("/api/v1/namespaces/default").await;
                times.push(measured.map_err(|error| Unread::Failed(error.to_string()))?);
            }
            Ok(times)
        })
        .await
    }

    /// Runs a reading under the deadline.
    pub(super) async fn within<T>(&self, reading: impl Future<Output = Read<T>>) -> Read<T> {
        let late = |_| Err(Unread::Failed(format!("no answer within {} s", self.deadline.as_secs())));
        timeout(self.deadline, reading).await.unwrap_or_else(late)
    }

    /// Reads an object; `None` if it does not exist. `doing` is the right that it takes, such as `get leases`.
    pub(super) async fn get<T: DeserializeOwned>(&self, doing: &str, path: &str) -> Read<Option<T>> {
        self.within(async {
            match self.counted(self.live.request(doing, Method::GET, path, None).await) {
                Ok(object) => Ok(Some(object)),
                Err(error) if error.status() == Some(404) => Ok(None),
                Err(error) => Err(unread(doing, &error)),
            }
        })
        .await
    }

    /// Lists objects, page by page; `None` if the API server does not serve the kind. `query` is appended to the path.
    pub(super) async fn list<T: DeserializeOwned>(&self, doing: &str, path: &str, query: &str) -> Read<Option<Vec<T>>> {
        self.within(async {
            let (mut items, mut next) = (Vec::new(), String::new());
            loop {
                let page = format!("{path}?limit=500{query}{next}");
                let page: Page<T> = match self.counted(self.live.request(doing, Method::GET, &page, None).await) {
                    Ok(page) => page,
                    Err(error) if error.status() == Some(404) => return Ok(None),
                    Err(error) => return Err(unread(doing, &error)),
                };
                items.extend(page.items);
                match page.metadata.next.filter(|next| !next.is_empty()) {
                    Some(token) => {
                        let token: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
                        next = format!("&continue={token}");
                    }
                    None => return Ok(Some(items)),
                }
            }
        })
        .await
    }

    /// Creates an object that asks a question: a review, or a dry run.
    pub(super) async fn ask(&self, doing: &str, path: &str, body: &Value) -> Result<Value, ReadError> {
        self.live.request(doing, Method::POST, path, Some(body)).await
    }

    /// Counts whether something may be read at all.
    fn counted<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        match &result {
            Err(error) if matches!(error.status(), Some(401 | 403)) => self.refused.fetch_add(1, Ordering::Relaxed),
            _ => self.read.fetch_add(1, Ordering::Relaxed),
        };
        result
    }

    pub(super) async fn nodes(&self) -> Read<Vec<NodeView>> {
        let nodes = self.list::<Value>("list nodes", "/api/v1/nodes", "").await?.unwrap_or_default();
        Ok(nodes.iter().map(node).collect())
    }

    pub(super) async fn admission_policies(&self) -> Read<(Vec<Value>, Vec<Value>)> {
        let group = "/apis/admissionregistration.k8s.io/v1";
        let (kind, plural) = ("ValidatingAdmissionPolicy", "validatingadmissionpolicies");
        let policies = self.list(&format!("list {plural}"), &format!("{group}/{plural}"), "").await?;
        let plural = "validatingadmissionpolicybindings";
        let bindings = self.list(&format!("list {plural}"), &format!("{group}/{plural}"), "").await?;
        policies.zip(bindings).ok_or(Unread::NotServed(kind))
    }

    pub(super) async fn definitions(&self) -> Read<Vec<Definition>> {
        let mut found = Vec::new();
        for kind in KINDS {
            let name = format!("{}.{GROUP}", kind.plural);
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            found.extend(self.get::<Value>("get customresourcedefinitions", &path).await?.map(|it| definition(&it)));
        }
        Ok(found)
    }

    pub(super) async fn network_policies(&self, scope: &Scope) -> Read<[Vec<NetworkPolicy>; 2]> {
        let of = async |namespace: &str| {
            let path = format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies");
            self.list("list networkpolicies", &path, "").await.map(Option::unwrap_or_default)
        };
        Ok([of(&scope.namespace).await?, of(&scope.system).await?])
    }
}

/// Returns the reason of a failed request.
pub(super) fn unread(doing: &str, error: &ReadError) -> Unread {
    match error.status() {
        Some(401 | 403) => Unread::Forbidden(doing.to_owned()),
        _ => Unread::Failed(error.cause()),
    }
}

/// Reports whether the caller lacks the right to create an object. RBAC and admission both answer 403; only the words differ.
pub(super) fn lacks_right(error: &ReadError) -> bool {
    error.status() == Some(401) || error.cause().contains("cannot create resource")
}

/// Returns the reason of a failed request to a Pod.
pub(super) fn unasked(error: &PodError) -> Unread {
    match error {
        PodError::Read(error) => unread("create pods/portforward", error),
        broken @ PodError::Broken(_) => Unread::Failed(broken.to_string()),
    }
}

/// Returns a text in an object; empty if there is none.
pub(super) fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the items of a list in an object.
pub(super) fn items<'v>(object: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Reports whether the condition of this type is True.
pub(super) fn is_true(object: &Value, condition: &str) -> bool {
    items(object, "/status/conditions").any(|it| it["type"] == condition && it["status"] == "True")
}

fn node(node: &Value) -> NodeView {
    let images = items(node, "/status/images").flat_map(|image| items(image, "/names"));
    NodeView {
        name: text(node, "/metadata/name"),
        kubelet: text(node, "/status/nodeInfo/kubeletVersion"),
        os: text(node, "/status/nodeInfo/operatingSystem"),
        arch: text(node, "/status/nodeInfo/architecture"),
        ready: is_true(node, "Ready"),
        images: images.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
    }
}

/// Returns what is judged of a CustomResourceDefinition.
pub(in crate::doctor) fn definition(definition: &Value) -> Definition {
    let annotation = |name: &str| definition.pointer("/metadata/annotations")?.get(name)?.as_str().map(str::to_owned);
    Definition {
        name: text(definition, "/metadata/name"),
        schema: annotation(CRD_SCHEMA),
        version: annotation(CRD_VERSION),
        fields: fields(definition),
        established: is_true(definition, "Established"),
        by_helm: is_by_helm(definition),
        release: helm_release(definition),
    }
}

/// Returns the paths of the fields in the schema of a CustomResourceDefinition; `[]` stands for every item of a list, `.*` for
/// every value of a map.
fn fields(definition: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let ours = items(definition, "/spec/versions").find(|version| version["name"] == VERSION);
    if let Some(schema) = ours.and_then(|version| version.pointer("/schema/openAPIV3Schema")) {
        collect_fields(schema, "", &mut found);
    }
    found
}

fn collect_fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect_fields(field, &path, found);
        found.insert(path);
    }
    for (inner, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
        if schema[inner].is_object() {
            collect_fields(&schema[inner], &format!("{path}{suffix}"), found);
        }
    }
}

/// Reports whether Helm made the object, or another tool of a chart.
pub(super) fn is_by_helm(object: &Value) -> bool {
    text(object, "/metadata/labels/app.kubernetes.io~1managed-by") == "Helm"
}

/// Returns the release of Helm that an object is of.
pub(super) fn helm_release(object: &Value) -> Option<HelmRelease> {
    let annotation = |name: &str| text(object, &format!("/metadata/annotations/meta.helm.sh~1release-{name}"));
    let (name, namespace) = (annotation("name"), annotation("namespace"));
    (!name.is_empty() && !namespace.is_empty()).then_some(HelmRelease { name, namespace })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_release_is_known_by_the_annotations_of_helm() {
        let annotations = json!({ "meta.helm.sh/release-name": "ours", "meta.helm.sh/release-namespace": "charts" });
        let release = helm_release(&json!({ "metadata": { "annotations": annotations } }));
        assert_eq!(release, Some(HelmRelease { name: "ours".into(), namespace: "charts".into() }));
        assert_eq!(helm_release(&json!({ "metadata": { "name": "x" } })), None);
    }
}
