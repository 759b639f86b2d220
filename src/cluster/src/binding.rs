//! RoleBinding that gives a namespaced operator its rights in one namespace, and our finalizer on it.
//!
//! Deleting a namespace deletes the RoleBinding along with the objects, in random order. Without its right the operator could not remove
//! the finalizer of any object. So the same finalizer holds the RoleBinding until the last object is gone.

use std::{fmt, sync::Arc};

use crds::{FIELD_MANAGER, FINALIZER};
use http::Method;
use machine::ApiError;
use meta::Key;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;

use super::{
    decode::{self, object_version},
    error::{ApiOperation, RequestError, classify},
    patch::patch_request,
    resource::{RequestTarget, Resource},
    store::{ChangeSource, ObjectMap, ObjectVersion, Versioned},
    transport::{RequestInfo, Transport, api_request},
    watch::WatchSource,
};

/// Name of the RoleBinding, as in config/namespaced.
pub const ROLE_BINDING: &str = "recif-operator";

/// RoleBinding, reduced to what decisions depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The uid.
    pub uid: String,
    /// All finalizers.
    pub finalizers: Vec<String>,
    /// True while it is being deleted.
    pub deleting: bool,
}

impl Binding {
    /// Reports whether our finalizer holds it.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct WireBinding {
            metadata: BindingMeta,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct BindingMeta {
            uid: String,
            #[serde(default)]
            finalizers: Vec<String>,
            deletion_timestamp: Option<IgnoredAny>,
        }
        let BindingMeta { uid, finalizers, deletion_timestamp } = serde_json::from_str::<WireBinding>(json)?.metadata;
        Ok(Self { uid, finalizers, deleting: deletion_timestamp.is_some() })
    }
}

/// Returns the source of a watch of this RoleBinding alone.
pub fn source() -> WatchSource<Binding> {
    let decode = Arc::new(|_: &ObjectVersion, json: &str| Binding::read(json));
    WatchSource { resource: Resource::ROLE_BINDING, labels: None, fields: Some("metadata.name=recif-operator"), decode }
}

/// Client for the RoleBindings.
pub struct Bindings {
    transport: Arc<Transport>,
    map: Arc<ObjectMap<Binding>>,
}

impl fmt::Debug for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bindings").finish_non_exhaustive()
    }
}

impl Bindings {
    /// Creates a client that writes through `transport` and puts the responses into the map of the watch.
    pub fn new(transport: Arc<Transport>, map: Arc<ObjectMap<Binding>>) -> Self {
        Self { transport, map }
    }

    /// Returns the RoleBinding of a namespace.
    pub fn get(&self, namespace: &str) -> Option<Arc<Binding>> {
        self.map.get(&Key::new(namespace, ROLE_BINDING))
    }

    /// Adds our finalizer to the RoleBinding of a namespace, or removes it, if the RoleBinding is as it was read (optimistic concurrency).
    ///
    /// # Errors
    /// The failure of the request, classified.
    pub async fn set_finalizer(&self, namespace: &str, binding: &Binding, held: bool) -> Result<(), ApiError> {
        let others = binding.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER);
        let finalizers: Vec<&str> = others.map(String::as_str).chain(held.then_some(FINALIZER)).collect();
        let read = if binding.finalizers.is_empty() { json!(null) } else { json!(binding.finalizers) };
        let patch = json!([
            { "op": "test", "path": "/metadata/uid", "value": binding.uid },
            { "op": "test", "path": "/metadata/finalizers", "value": read },
            { "op": "add", "path": "/metadata/finalizers", "value": finalizers },
        ]);
        let target = RequestTarget::new(Resource::ROLE_BINDING.object(namespace, ROLE_BINDING));
        let target = target.with("fieldManager", FIELD_MANAGER).into_string();
        let request = patch_request(target, &patch);
        let object = Key::new(namespace, ROLE_BINDING).to_string();
        let call = RequestInfo { verb: "patch", kind: Resource::ROLE_BINDING.kind, object };
        let take = |body: &[u8]| {
            let text = str::from_utf8(body).map_err(serde::de::Error::custom)?;
            let (head, binding) = (object_version(text)?, Binding::read(text)?);
            match binding.deleting && binding.finalizers.is_empty() {
                true => self.map.remove(&head.key, head.resource_version, ChangeSource::Write),
                false => self.map.observe(Versioned::new(head, binding), ChangeSource::Write),
            }
            Ok(())
        };
        self.transport.write(&call, ApiOperation::JsonPatch, request, take).await
    }

    /// Reports whether the namespace is being deleted. The right to query that comes with the RoleBinding.
    ///
    /// # Errors
    /// The failure of the request, classified.
    pub async fn is_namespace_terminating(&self, namespace: &str) -> Result<bool, ApiError> {
        let call = RequestInfo { verb: "get", kind: Resource::NAMESPACE.kind, object: namespace.to_owned() };
        let request = api_request(Method::GET, Resource::NAMESPACE.object("", namespace), None, Vec::new());
        let unreadable = |error: serde_json::Error| {
            let what = format!("get Namespace {namespace}");
            classify(ApiOperation::Get, RequestError::Unreadable { what, cause: error.to_string() })
        };
        let body = self.transport.call(&call, request).await.map_err(|error| classify(ApiOperation::Get, error))?;
        let text = str::from_utf8(&body).map_err(|error| unreadable(serde::de::Error::custom(error)))?;
        decode::labels(text).map(|(_, deleting)| deleting).map_err(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{response, scripted};

    fn binding(finalizers: &[&str], deleting: bool) -> String {
        let deleted = deleting.then_some("2030-01-01T00:00:00Z");
        json!({ "metadata": {
            "name": ROLE_BINDING, "namespace": "ns", "uid": "u", "resourceVersion": "7", "finalizers": finalizers,
            "deletionTimestamp": deleted,
        }})
        .to_string()
    }

    #[tokio::test]
    async fn it_is_held_beside_the_finalizers_of_others_and_let_go() {
        let answers = vec![response(200, binding(&["x", FINALIZER], false)), response(200, binding(&[], true))];
        let (transport, mut asked) = scripted(answers);
        let bindings = Bindings::new(transport, Arc::default());
        let read = Binding { uid: "u".into(), finalizers: vec!["x".into()], deleting: false };
        bindings.set_finalizer("ns", &read, true).await.unwrap();
        let held = bindings.get("ns").unwrap();
        assert!(held.has_finalizer());
        bindings.set_finalizer("ns", &Binding { finalizers: vec![FINALIZER.into()], ..read }, false).await.unwrap();
        assert_eq!(bindings.get("ns"), None);
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings/recif-operator";
        let first = asked.recv().await.unwrap();
        assert_eq!(first.line, format!("PATCH {path}?fieldManager=recif-operator"));
        assert_eq!(first.body[1]["value"], json!(["x"]));
        assert_eq!(first.body[2]["value"], json!(["x", FINALIZER]));
        assert_eq!(asked.recv().await.unwrap().body[2]["value"], json!([]));
    }

    #[tokio::test]
    async fn a_namespace_that_is_being_deleted_says_so() {
        let going = r#"{"metadata":{"name":"ns","deletionTimestamp":"2030-01-01T00:00:00Z"}}"#;
        let (transport, mut asked) =
            scripted(vec![response(200, going.into()), response(200, r#"{"metadata":{"name":"ns"}}"#.into())]);
        let bindings = Bindings::new(transport, Arc::default());
        assert_eq!(bindings.is_namespace_terminating("ns").await, Ok(true));
        assert_eq!(bindings.is_namespace_terminating("ns").await, Ok(false));
        assert_eq!(asked.recv().await.unwrap().line, "GET /api/v1/namespaces/ns");
    }
}
