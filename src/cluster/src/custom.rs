//! Decodes the objects of our own kinds: whole, but for `managedFields`, which no code reads and which would be half of their memory.

use std::{borrow::Cow, collections::BTreeMap};

use crds::CustomObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, de::value::MapDeserializer};
use serde_json::value::RawValue;

/// Decodes an object of one of our kinds, and keeps its conditions as stored where that is not how we would write them.
///
/// # Errors
/// Fails if the JSON is no object of this kind.
pub fn decode_custom<K: CustomObject>(json: &str) -> Result<K, serde_json::Error> {
    let WireObject { metadata, spec, status } = serde_json::from_str(json)?;
    let Some(stored) = status else { return Ok(K::from_parts(WireObjectMeta::into(metadata), spec, None)) };
    // The two long lists are decoded on their own, because whatever is flattened into another type is copied before it is decoded.
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(stored.get())?;
    let (conditions, history) = (fields.remove("conditions"), fields.remove("history"));
    let status = K::Status::deserialize(MapDeserializer::new(fields.into_iter()))?;
    let mut object = K::from_parts(WireObjectMeta::into(metadata), spec, Some(status));
    let common = object.common_mut();
    if let Some(history) = history {
        common.history = read_list(history)?;
    }
    if let Some(conditions) = conditions {
        common.conditions = read_list(conditions)?;
        common.retain_raw(&serde_json::from_str::<Vec<&RawValue>>(conditions.get())?);
    }
    Ok(object)
}

/// Decodes a list without spare capacity, because it is kept as it is.
fn read_list<'a, T: Deserialize<'a>>(stored: &'a RawValue) -> Result<Vec<T>, serde_json::Error> {
    let mut list: Vec<T> = serde_json::from_str(stored.get())?;
    list.shrink_to_fit();
    Ok(list)
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "Spec: Deserialize<'de>"))]
struct WireObject<'a, Spec> {
    metadata: WireObjectMeta,
    spec: Spec,
    #[serde(default, borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireObjectMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<WireObjectMeta> for ObjectMeta {
    fn from(meta: WireObjectMeta) -> Self {
        Self {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            creation_timestamp: meta.creation_timestamp,
            deletion_timestamp: meta.deletion_timestamp,
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: meta.owner_references,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use crds::{Agent, FlowSet};
    use meta::PhasedObject as _;

    use super::*;

    #[test]
    fn an_agent_is_read_whole_but_for_managed_fields() {
        let json = r#"{"apiVersion":"agents.recif.dev/v1","kind":"Agent","metadata":{"name":"a","namespace":"ns",
            "resourceVersion":"3","finalizers":["x"],"managedFields":[{"manager":"m"}]},
            "spec":{"name":"A","framework":"corail"},"status":{"phase":"Hibernating","replicas":1}}"#;
        let agent = decode_custom::<Agent>(json).unwrap();
        assert_eq!(agent.metadata.managed_fields, None);
        assert_eq!(agent.metadata.finalizers, Some(vec!["x".to_owned()]));
        assert_eq!(agent.spec.image, "corail:latest");
        assert_eq!(agent.status.unwrap().machine.phase.as_deref(), Some("Hibernating"));
    }

    #[test]
    fn a_status_is_read_as_its_type_reads_it() {
        let status = serde_json::json!({
            "phase": "Running", "observedGeneration": 3, "replicas": 1, "inputs": { "Tool/t": "d" }, "readyFlows": 2,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Running", "message": "a < b",
                "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "history": [{ "seq": 1, "at": "2026-01-01T00:00:00Z", "to": "Pending" }],
            "children": [{ "kind": "Service", "name": "a", "uid": "u", "inputs": "i", "owned": "o" }],
        });
        let spec = serde_json::json!({ "flows": [{ "name": "f", "prompts": [] }] });
        let json = serde_json::json!({ "metadata": {}, "spec": spec, "status": status });
        let read = decode_custom::<FlowSet>(&json.to_string()).unwrap();
        assert_eq!(read.status, Some(serde_json::from_value(status).unwrap()));
    }

    #[test]
    fn conditions_of_others_are_tested_for_and_given_back_as_they_are_stored() {
        let stored = serde_json::json!([{ "type": "Audited", "status": "True", "reason": "Passed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00.123+00:00" }]);
        let json = serde_json::json!({ "metadata": { "name": "a", "resourceVersion": "3" },
            "spec": { "name": "A", "framework": "corail" }, "status": { "phase": "Running", "conditions": stored } });
        let agent = decode_custom::<Agent>(&json.to_string()).unwrap();
        assert_eq!(agent.status_json()["conditions"], stored);
    }
}
