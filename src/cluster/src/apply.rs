//! Writes children by [server-side apply](https://kubernetes.io/docs/reference/using-api/server-side-apply/), as the operator's field
//! manager: one request per call, reduced responses, each response in the cache before the caller receives it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt::{self, Write as _},
    sync::Arc,
};

use actions::{
    ports::{CachedChild, ChildClient, ChildKind, ChildManifest, ChildRef, OwnerState},
    workload::REPLICAS,
};
use async_trait::async_trait;
use crds::FIELD_MANAGER;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machine::ApiError;
use meta::Key;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::{ApiOperation, RequestError, classify},
    resource::{RequestTarget, Resource},
    scale::replicas_request,
    store::{ChangeSource, ObjectMap},
    transport::{ApiRequest, RequestInfo, Transport, api_request, read_json},
};
use crate::child_requests::{APPLY, read};

const JSON: Option<&str> = Some("application/json");
/// Resource version that makes an apply create-only. An apply with a version is refused with 409 if the object exists in another version,
/// and creates the object if it does not exist. The first version of a store is taken before there is any object.
const MUST_NOT_EXIST: &str = "1";

/// Informer caches of the children, by kind.
pub type ChildMaps = HashMap<ChildKind, Arc<ObjectMap<CachedChild>>>;

/// Client for the children: reads past the cache, writes by server-side apply.
pub struct ChildWriter {
    transport: Arc<Transport>,
    maps: ChildMaps,
}

impl fmt::Debug for ChildWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildWriter").finish_non_exhaustive()
    }
}

impl ChildWriter {
    /// Creates a client that writes through `transport` and puts the responses into `maps`.
    pub fn new(transport: Arc<Transport>, maps: ChildMaps) -> Self {
        Self { transport, maps }
    }

    /// Takes a response that is a child into the informer cache.
    fn cache_response(&self, kind: ChildKind, body: &[u8]) -> Result<Arc<CachedChild>, serde_json::Error> {
        let seen = read(kind, body)?;
        let object = seen.object.clone();
        if let Some(map) = self.maps.get(&kind) {
            map.observe(seen, ChangeSource::Write);
        }
        Ok(object)
    }
}

#[async_trait]
impl ChildClient for ChildWriter {
    async fn get(&self, child: &ChildRef) -> Result<Option<Arc<CachedChild>>, ApiError> {
        let call = request_info("get", child);
        let request = api_request(Method::GET, path(child), None, Vec::new());
        match self.transport.call(&call, request).await.map_err(|error| classify(ApiOperation::Get, error)) {
            // Not cached: the watch may be restricted to our labels, and would then never report a change or the deletion.
            Ok(body) => match read(child.kind, &body) {
                Ok(seen) => Ok(Some(seen.object)),
                Err(error) => {
                    let (what, cause) = (format!("get {child}"), error.to_string());
                    Err(classify(ApiOperation::Get, RequestError::Unreadable { what, cause }))
                }
            },
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn get_owner(&self, kind: &'static str, owner: &Key) -> Result<Option<OwnerState>, ApiError> {
        #[derive(Deserialize)]
        struct OwnerObject {
            metadata: ObjectMeta,
            #[serde(default)]
            status: OwnerStatus,
        }
        #[derive(Deserialize, Default)]
        struct OwnerStatus {
            #[serde(default)]
            history: Vec<HistorySequence>,
        }
        #[derive(Deserialize)]
        struct HistorySequence {
            seq: i64,
        }
        let Some(resource) = Resource::custom(kind) else { return Ok(None) };
        let call = RequestInfo { verb: "get", kind, object: owner.to_string() };
        let path = resource.object(&owner.namespace, &owner.name);
        let request = api_request(Method::GET, path, None, Vec::new());
        let read = async { read_json::<OwnerObject>(&call, &self.transport.call(&call, request).await?) };
        match read.await.map_err(|error| classify(ApiOperation::Get, error)) {
            Ok(OwnerObject { metadata: meta, status: OwnerStatus { history } }) => {
                Ok(Some(OwnerState { meta, seq: history.last().map_or(0, |entry| entry.seq) }))
            }
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn get_data(&self, child: &ChildRef) -> Result<BTreeMap<String, String>, ApiError> {
        #[derive(Deserialize)]
        struct Data {
            #[serde(default)]
            data: BTreeMap<String, String>,
        }
        let call = request_info("get", child);
        let request = api_request(Method::GET, path(child), None, Vec::new());
        let read = async { read_json::<Data>(&call, &self.transport.call(&call, request).await?) };
        read.await.map(|found| found.data).map_err(|error| classify(ApiOperation::Get, error))
    }

    async fn apply(&self, manifest: &ChildManifest, uid: Option<&str>) -> Result<Arc<CachedChild>, ApiError> {
        let child = &manifest.child;
        let (operation, guard) = match uid {
            Some(uid) => (ApiOperation::Apply, ("uid", uid)),
            None => (ApiOperation::Create, ("resourceVersion", MUST_NOT_EXIST)),
        };
        let request = apply_request(manifest, Some(guard), false);
        let keep = |body: &[u8]| self.cache_response(child.kind, body);
        self.transport.write(&request_info("apply", child), operation, request, keep).await
    }

    async fn dry_run(&self, manifest: &ChildManifest) -> Result<(), ApiError> {
        let request = apply_request(manifest, None, true);
        let answer = self.transport.call(&request_info("dry-run", &manifest.child), request).await;
        answer.map(|_| ()).map_err(|error| classify(ApiOperation::Apply, error))
    }

    async fn set_replicas(
        &self,
        deployment: &ChildRef,
        uid: &str,
        replicas: Option<i32>,
    ) -> Result<Arc<CachedChild>, ApiError> {
        let request = replicas_request(deployment, uid, replicas, REPLICAS);
        let keep = |body: &[u8]| self.cache_response(deployment.kind, body);
        self.transport.write(&request_info("scale", deployment), ApiOperation::Apply, request, keep).await
    }

    async fn delete(&self, child: &ChildRef, uid: &str) -> Result<(), ApiError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "propagationPolicy": "Foreground", "preconditions": { "uid": uid },
        });
        let request = api_request(Method::DELETE, path(child), JSON, options.to_string().into_bytes());
        // The response is the object while it waits for its dependents, and a Status when it is gone at once.
        let take = |body: &[u8]| {
            let _ = self.cache_response(child.kind, body);
            Ok(())
        };
        match self.transport.write(&request_info("delete", child), ApiOperation::Delete, request, take).await {
            Err(ApiError::NotFound) => Ok(()),
            other => other,
        }
    }
}

fn request_info(verb: &'static str, child: &ChildRef) -> RequestInfo {
    RequestInfo { verb, kind: child.kind.as_str(), object: format!("{}/{}", child.namespace, child.name) }
}

fn path(child: &ChildRef) -> String {
    Resource::child(child.kind).object(&child.namespace, &child.name)
}

/// Builds a server-side apply as the operator's field manager. `guard` is a field of the metadata and its required value.
fn apply_request(manifest: &ChildManifest, guard: Option<(&str, &str)>, dry_run: bool) -> ApiRequest {
    let mut target =
        RequestTarget::new(path(&manifest.child)).with("fieldManager", FIELD_MANAGER).with("force", "true");
    if dry_run {
        target = target.with("dryRun", "All");
    }
    let mut body = Cow::Borrowed(&manifest.body);
    if let Some((field, value)) = guard
        && let Some(metadata) = body.to_mut().get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert(field.into(), value.into());
    }
    api_request(Method::PATCH, target.into_string(), APPLY, yaml_safe(body.to_string()).into_bytes())
}

/// Escapes the characters that YAML forbids, so that the JSON is also YAML. The API server reads an apply as YAML, which forbids some
/// characters that JSON may hold unescaped (YAML 1.2, 5.1); as escapes they mean the same in both.
pub(super) fn yaml_safe(json: String) -> String {
    let is_forbidden = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}'..='\u{ffff}');
    if !json.contains(is_forbidden) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        // They can only stand inside a string, because the tokens of JSON are ASCII.
        if is_forbidden(c) {
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{response, scripted};

    fn manifest() -> ChildManifest {
        let child = ChildRef { kind: ChildKind::Service, namespace: "ns".into(), name: "a".into() };
        ChildManifest { child, body: json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}) }
    }

    fn service(version: u64) -> String {
        json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": version.to_string()}})
            .to_string()
    }

    fn maps() -> (ChildMaps, Arc<ObjectMap<CachedChild>>) {
        let map = Arc::new(ObjectMap::default());
        (ChildMaps::from([(ChildKind::Service, map.clone())]), map)
    }

    #[tokio::test]
    async fn an_apply_is_bound_to_the_uid_and_its_answer_is_known_at_once() {
        let (transport, mut requests) = scripted(vec![response(200, service(7))]);
        let (maps, map) = maps();
        let writer = ChildWriter::new(transport, maps);
        let child = writer.apply(&manifest(), Some("u1")).await.unwrap();
        assert_eq!(map.get(&meta::Key::new("ns", "a")), Some(child));
        let request = requests.recv().await.unwrap();
        let target = "/api/v1/namespaces/ns/services/a?fieldManager=recif-operator&force=true";
        assert_eq!(request.line, format!("PATCH {target}"));
        assert_eq!(request.body["metadata"]["uid"], "u1");
    }

    #[tokio::test]
    async fn an_apply_of_what_is_not_known_is_refused_where_the_name_is_taken() {
        let taken = r#"{"message":"the object has been modified","reason":"Conflict","code":409}"#;
        let (transport, mut requests) = scripted(vec![response(409, taken.into())]);
        let refused = ChildWriter::new(transport, maps().0).apply(&manifest(), None).await;
        assert!(matches!(refused, Err(ApiError::WrongUid(_))), "{refused:?}");
        let metadata = &requests.recv().await.unwrap().body["metadata"];
        assert_eq!((&metadata["resourceVersion"], &metadata["uid"]), (&json!("1"), &Value::Null));
    }

    #[test]
    fn what_yaml_forbids_is_escaped_and_means_the_same() {
        let text = "a\u{7f}\u{80}\u{85}\u{9f}\u{a0}\u{feff}\u{fffd}\u{fffe}\u{ffff}\u{10000}ü\n\u{1}";
        let safe = yaml_safe(json!({ "text": text }).to_string());
        let escaped = r#"{"text":"a\u007f\u0080\u0085\u009f\u{a0}\ufeff\u{fffd}\ufffe\uffff\u{10000}ü\n\u0001"}"#;
        let plain = |text: &str| {
            text.replace("\\u{a0}", "\u{a0}").replace("\\u{fffd}", "\u{fffd}").replace("\\u{10000}", "\u{10000}")
        };
        assert_eq!(safe, plain(escaped));
        assert_eq!(serde_json::from_str::<Value>(&safe).unwrap()["text"], text);
    }

    #[tokio::test]
    async fn a_text_that_yaml_forbids_is_sent_as_an_escape() {
        let (transport, mut requests) = scripted(vec![response(200, service(7))]);
        let mut manifest = manifest();
        manifest.body["data"] = json!({ "text": "be nice\u{7f} and \u{9d} short" });
        ChildWriter::new(transport, maps().0).apply(&manifest, Some("u1")).await.unwrap();
        let asked = requests.recv().await.unwrap();
        assert_eq!(asked.body["data"]["text"], "be nice\u{7f} and \u{9d} short");
        assert!(asked.text.contains(r"nice\u007f and \u009d short"), "{}", asked.text);
    }

    #[tokio::test]
    async fn a_dry_run_stores_nothing() {
        let (transport, mut requests) = scripted(vec![response(200, service(7))]);
        let (maps, map) = maps();
        ChildWriter::new(transport, maps).dry_run(&manifest()).await.unwrap();
        assert!(map.is_empty());
        assert!(requests.recv().await.unwrap().line.ends_with("&dryRun=All"));
    }

    #[tokio::test]
    async fn a_delete_is_foreground_and_bound_to_the_uid() {
        let (transport, mut requests) = scripted(vec![response(200, r#"{"kind":"Status","metadata":{}}"#.into())]);
        ChildWriter::new(transport, maps().0).delete(&manifest().child, "u1").await.unwrap();
        let body = requests.recv().await.unwrap().body;
        assert_eq!((&body["propagationPolicy"], &body["preconditions"]["uid"]), (&json!("Foreground"), &json!("u1")));
    }

    #[tokio::test]
    async fn an_owner_is_read_with_what_a_step_depends_on() {
        let owner = json!({
            "metadata": {"name": "a", "uid": "u1", "generation": 3},
            "status": {"phase": "Running", "history": [{"seq": 4}, {"seq": 5}]},
        });
        let gone = response(404, r#"{"message":"not found","code":404}"#.into());
        let (transport, mut requests) = scripted(vec![response(200, owner.to_string()), gone]);
        let writer = ChildWriter::new(transport, maps().0);
        let read = writer.get_owner("Agent", &Key::new("ns", "a")).await.unwrap().unwrap();
        assert_eq!((read.meta.generation, read.seq), (Some(3), 5));
        assert_eq!(writer.get_owner("Agent", &Key::new("ns", "a")).await, Ok(None));
        assert_eq!(requests.recv().await.unwrap().line, "GET /apis/agents.recif.dev/v1/namespaces/ns/agents/a");
    }

    #[tokio::test]
    async fn what_is_gone_is_deleted_already_and_not_there_to_look_at() {
        let gone = || response(404, r#"{"message":"not found","code":404}"#.into());
        let (transport, _requests) = scripted(vec![gone(), gone()]);
        let writer = ChildWriter::new(transport, maps().0);
        assert_eq!(writer.delete(&manifest().child, "u1").await, Ok(()));
        assert_eq!(writer.get(&manifest().child).await, Ok(None));
    }
}
