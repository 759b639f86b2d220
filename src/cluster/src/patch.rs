//! Client for the objects of one of our kinds: reads the informer cache, writes by JSON Patch ([RFC
//! 6902](https://www.rfc-editor.org/rfc/rfc6902)).
//!
//! Writes use optimistic concurrency: the `test` operations of a patch state what the caller's step is based on, and the API server refuses
//! the patch ([`ApiError::Stale`]) if one of them no longer holds.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use crds::{CustomObject, FIELD_MANAGER};
use http::Method;
use machine::{ApiError, ObjectClient};
use meta::{Key, PhasedObject};
use serde_json::Value;

use super::{
    custom::decode_custom,
    error::ApiOperation,
    resource::{RequestTarget, Resource},
    store::{ChangeSource, ObjectMap, ObjectVersion, Versioned},
    transport::{ApiRequest, RequestInfo, Transport, api_request},
};

/// Client for the objects of one kind. Each response is in the cache before the caller receives it.
pub struct CustomObjects<K> {
    transport: Arc<Transport>,
    map: Arc<ObjectMap<K>>,
    manager: &'static str,
}

impl<K> fmt::Debug for CustomObjects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomObjects").finish_non_exhaustive()
    }
}

impl<K: CustomObject> CustomObjects<K> {
    /// Creates a client that writes through `transport` and reads from `map`.
    pub fn new(transport: Arc<Transport>, map: Arc<ObjectMap<K>>) -> Self {
        Self { transport, map, manager: FIELD_MANAGER }
    }

    /// Returns the client under the name of another field manager.
    #[must_use]
    pub fn managed_by(self, manager: &'static str) -> Self {
        Self { manager, ..self }
    }

    async fn patch(&self, key: &Key, subresource: &str, patch: &Value) -> Result<Arc<K>, ApiError> {
        let path = Resource::of::<K>().object(&key.namespace, &key.name) + subresource;
        let target = RequestTarget::new(path).with("fieldManager", self.manager);
        // Fields outside the schema do not concern our patches, and looking for them costs the API server a decoding.
        let target = target.with("fieldValidation", "Ignore").into_string();
        let request = patch_request(target, patch);
        let verb = if subresource.is_empty() { "patch" } else { "patch status" };
        let call = RequestInfo { verb, kind: Resource::of::<K>().kind, object: key.to_string() };
        let take = |body: &[u8]| {
            let object = decode_custom::<K>(str::from_utf8(body).map_err(serde::de::Error::custom)?)?;
            let version = object.meta().resource_version.as_deref().unwrap_or_default();
            let version = version.parse().map_err(serde::de::Error::custom)?;
            let seen = Versioned::new(
                ObjectVersion { key: object.key(), uid: object.uid().to_owned(), resource_version: version },
                object,
            );
            let object = seen.object.clone();
            if is_over(&*object) {
                self.map.remove(&seen.version.key, seen.version.resource_version, ChangeSource::Write);
            } else {
                self.map.observe(seen, ChangeSource::Write);
            }
            Ok(object)
        };
        self.transport.write(&call, ApiOperation::JsonPatch, request, take).await
    }
}

/// Builds the request of a JSON Patch.
///
/// The API server compares the value of a `test` with the stored one byte by byte, and its JSON encoder, that of Go, escapes `<`,
/// `>`, `&`, U+2028 and U+2029 within strings: so does this, else an object with one of them in a condition could never be written
/// again. See `HTMLEscape` in <https://pkg.go.dev/encoding/json>.
pub(super) fn patch_request(target: String, patch: &Value) -> ApiRequest {
    let text = patch.to_string();
    let mut body = String::with_capacity(text.len());
    // Outside of strings JSON has none of these characters.
    for character in text.chars() {
        match character {
            '<' => body.push_str("\\u003c"),
            '>' => body.push_str("\\u003e"),
            '&' => body.push_str("\\u0026"),
            '\u{2028}' => body.push_str("\\u2028"),
            '\u{2029}' => body.push_str("\\u2029"),
            other => body.push(other),
        }
    }
    api_request(Method::PATCH, target, Some("application/json-patch+json"), body.into_bytes())
}

/// Reports whether this is the end of the object: it is being deleted and no finalizer holds it.
fn is_over<K: PhasedObject>(object: &K) -> bool {
    object.is_deleting() && object.meta().finalizers.as_ref().is_none_or(Vec::is_empty)
}

#[async_trait]
impl<K: CustomObject> ObjectClient<K> for CustomObjects<K> {
    fn newest(&self, key: &Key) -> Option<Arc<K>> {
        self.map.get(key)
    }

    async fn patch_status(&self, key: &Key, patch: Value) -> Result<Arc<K>, ApiError> {
        self.patch(key, "/status", &patch).await
    }

    async fn patch_metadata(&self, key: &Key, patch: Value) -> Result<Option<Arc<K>>, ApiError> {
        let object = self.patch(key, "", &patch).await?;
        Ok((!is_over(&*object)).then_some(object))
    }
}

#[cfg(test)]
mod tests {
    use crds::Agent;
    use serde_json::json;

    use super::*;
    use crate::testing::{response, scripted};

    fn agent(version: u64, deleting: bool) -> String {
        let mut metadata = json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string()});
        if deleting {
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        json!({"metadata": metadata, "spec": {"name": "A", "framework": "corail"}}).to_string()
    }

    #[tokio::test]
    async fn the_answer_is_what_is_read_next() {
        let (transport, mut asked) = scripted(vec![response(200, agent(7, false))]);
        let objects = CustomObjects::<Agent>::new(transport, Arc::default());
        let key = Key::new("ns", "a");
        let patch = json!([{"op": "test", "path": "/metadata/uid", "value": "u"}]);
        let stored = objects.patch_status(&key, patch.clone()).await.unwrap();
        assert_eq!(objects.newest(&key), Some(stored));
        let asked = asked.recv().await.unwrap();
        let path = "/apis/agents.recif.dev/v1/namespaces/ns/agents/a/status?fieldManager=recif-operator&fieldValidation=Ignore";
        assert_eq!((asked.line, asked.body), (format!("PATCH {path}"), patch));
    }

    #[test]
    fn strings_are_escaped_as_the_api_server_stores_them() {
        let patch = json!([{"op": "test", "path": "/a", "value": "<a> & \u{2028}\u{2029} \" \\ é \n\u{1}\u{8}\u{c}"}]);
        let request = patch_request("/x".to_owned(), &patch);
        let body = str::from_utf8(request.body()).unwrap();
        let value = r#""\u003ca\u003e \u0026 \u2028\u2029 \" \\ é \n\u0001\b\f""#;
        assert!(body.contains(value), "{body}");
        assert_eq!(serde_json::from_str::<Value>(body).unwrap(), patch, "the same value");
    }

    #[tokio::test]
    async fn an_object_whose_last_finalizer_went_is_gone() {
        let (transport, _asked) = scripted(vec![response(200, agent(7, true))]);
        let map = Arc::new(ObjectMap::default());
        let objects = CustomObjects::<Agent>::new(transport, map.clone());
        let key = Key::new("ns", "a");
        assert_eq!(objects.patch_metadata(&key, json!([])).await, Ok(None));
        assert_eq!(objects.newest(&key), None);
    }
}
