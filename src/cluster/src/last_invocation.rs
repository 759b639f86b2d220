//! Writes the time of a workload's last invocation into its status, and nothing else.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use machine::ApiError;
use meta::Key;
use serde_json::json;

use super::{
    error::{ApiOperation, classify},
    patch::patch_request,
    resource::{RequestTarget, Resource},
    transport::{RequestInfo, Transport},
};

/// Field manager of this field.
const MANAGER: &str = "recif-gateway";
/// JSON Pointer to the field.
const FIELD: &str = "/status/lastInvocationAt";

/// Object of one of our kinds that was invoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvokedObject {
    /// Resource of its kind.
    pub resource: Resource,
    /// Namespace and name.
    pub key: Key,
    /// The uid.
    pub uid: String,
}

/// Client for that field.
pub struct LastInvocationWriter {
    transport: Arc<Transport>,
}

impl fmt::Debug for LastInvocationWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastInvocationWriter").finish_non_exhaustive()
    }
}

impl LastInvocationWriter {
    /// Creates a client that writes through `transport`. It needs no Lease: every replica of the gateway writes what it saw.
    pub fn new(transport: Arc<Transport>) -> Self {
        Self { transport }
    }

    /// Writes `at` if the object has the same uid and, with `guard`, the field still holds what it held when it was read (optimistic
    /// concurrency).
    ///
    /// # Errors
    /// [`ApiError::Stale`] if one of them is not so; else the failure of the request.
    pub async fn write(
        &self,
        object: &InvokedObject,
        guard: Option<Option<Timestamp>>,
        at: Timestamp,
    ) -> Result<(), ApiError> {
        let InvokedObject { resource, key, uid } = object;
        let mut patch = vec![json!({ "op": "test", "path": "/metadata/uid", "value": uid })];
        // A missing field is equal to null.
        patch.extend(guard.map(|was| json!({ "op": "test", "path": FIELD, "value": was.map(text) })));
        patch.push(json!({ "op": "add", "path": FIELD, "value": text(at) }));
        let path = resource.object(&key.namespace, &key.name) + "/status";
        let target = RequestTarget::new(path).with("fieldManager", MANAGER).into_string();
        let request = patch_request(target, &json!(patch));
        let call = RequestInfo { verb: "patch status", kind: resource.kind, object: key.to_string() };
        let answer = self.transport.call(&call, request).await;
        answer.map(drop).map_err(|error| classify(ApiOperation::JsonPatch, error))
    }
}

/// Formats a time by RFC 3339 as Kubernetes does.
fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{response, scripted};

    fn object() -> InvokedObject {
        InvokedObject { resource: Resource::of::<crds::Agent>(), key: Key::new("ns", "a"), uid: "u".into() }
    }

    #[tokio::test]
    async fn one_field_of_one_object_is_written() {
        let (transport, mut asked) = scripted(vec![response(200, "{}".into()), response(200, "{}".into())]);
        let stamper = LastInvocationWriter::new(transport);
        let at = "2026-01-02T03:04:05.678Z".parse().unwrap();
        stamper.write(&object(), Some(None), at).await.unwrap();
        let path = "/apis/agents.recif.dev/v1/namespaces/ns/agents/a/status?fieldManager=recif-gateway";
        let first = asked.recv().await.unwrap();
        assert_eq!(first.line, format!("PATCH {path}"));
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/status/lastInvocationAt", "value": null},
            {"op": "add", "path": "/status/lastInvocationAt", "value": "2026-01-02T03:04:05Z"},
        ]);
        assert_eq!(first.body, expected);
        stamper.write(&object(), Some(Some(at)), at).await.unwrap();
        assert_eq!(asked.recv().await.unwrap().body[1]["value"], "2026-01-02T03:04:05Z");
    }

    #[tokio::test]
    async fn a_field_that_was_written_meanwhile_is_left_alone() {
        let refused = r#"{"message":"the server rejected our request","reason":"Invalid","details":{},"code":422}"#;
        let (transport, _asked) = scripted(vec![response(422, refused.into())]);
        let at = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(LastInvocationWriter::new(transport).write(&object(), Some(None), at).await, Err(ApiError::Stale));
    }
}
