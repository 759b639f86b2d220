//! Decodes the objects of our own kinds: whole, but for `managedFields`, which nobody reads and which would be half of
//! their memory.

use std::{borrow::Cow, collections::BTreeMap};

use crds::{
    Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, ReferenceStatus, RemoteMCPServer, Tool,
    WorkloadStatus, flow_set::FlowSetStatus, mcp_server::MCPServerStatus, prompt::PromptStatus,
    remote_mcp_server::RemoteMCPServerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use meta::CommonStatus;
use serde::{Deserialize, de::value::MapDeserializer};
use serde_json::value::RawValue;

use super::resource::Resource;

/// A kind of ours, as this room reads it.
pub trait Custom: Sized + Send + Sync + 'static {
    /// Where its objects are.
    const RESOURCE: Resource;

    /// Reads one.
    ///
    /// # Errors
    /// When it does not look like one.
    fn decode(json: &str) -> Result<Self, serde_json::Error>;
}

/// For each kind: where its objects are, the type of its status, and where that keeps the machine's part.
macro_rules! customs {
    ($($kind:ident at $resource:ident: $status:ident $(.$part:ident)+;)+) => {$(
        impl Custom for $kind {
            const RESOURCE: Resource = Resource::$resource;

            fn decode(json: &str) -> Result<Self, serde_json::Error> {
                let WireObject { metadata, spec, status } = serde_json::from_str(json)?;
                let status = read_status(status, |status: &mut $status| &mut status$(.$part)+)?;
                Ok(Self { metadata: WireObjectMeta::into(metadata), spec, status })
            }
        }
    )+};
}

customs! {
    Agent at AGENT: WorkloadStatus.machine;
    Flow at FLOW: WorkloadStatus.machine;
    FlowSet at FLOW_SET: FlowSetStatus.workload.machine;
    MCPServer at MCP_SERVER: MCPServerStatus.workload.machine;
    Tool at TOOL: ReferenceStatus.machine;
    Model at MODEL: ReferenceStatus.machine;
    PluginConfig at PLUGIN_CONFIG: ReferenceStatus.machine;
    Prompt at PROMPT: PromptStatus.machine;
    RemoteMCPServer at REMOTE_MCP_SERVER: RemoteMCPServerStatus.machine;
}

/// Reads a status, and keeps the conditions as stored where that is not how we would write them.
///
/// The two long lists are read by themselves: whatever is flattened into another type is copied before it is read.
fn read_status<'a, S: Deserialize<'a>>(
    stored: Option<&'a RawValue>,
    machine: impl FnOnce(&mut S) -> &mut CommonStatus,
) -> Result<Option<S>, serde_json::Error> {
    let Some(stored) = stored else { return Ok(None) };
    let mut fields: BTreeMap<Cow<'a, str>, &'a RawValue> = serde_json::from_str(stored.get())?;
    let (conditions, history) = (fields.remove("conditions"), fields.remove("history"));
    let mut status = S::deserialize(MapDeserializer::new(fields.into_iter()))?;
    let machine = machine(&mut status);
    if let Some(history) = history {
        machine.history = read_list(history)?;
    }
    if let Some(conditions) = conditions {
        machine.conditions = read_list(conditions)?;
        machine.retain_raw(&serde_json::from_str::<Vec<&RawValue>>(conditions.get())?);
    }
    Ok(Some(status))
}

/// Reads a list without room for more: it will be kept as it is.
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
    use meta::PhasedObject as _;

    use super::*;

    #[test]
    fn an_agent_is_read_whole_but_for_managed_fields() {
        let json = r#"{"apiVersion":"agents.recif.dev/v1","kind":"Agent","metadata":{"name":"a","namespace":"ns",
            "resourceVersion":"3","finalizers":["x"],"managedFields":[{"manager":"m"}]},
            "spec":{"name":"A","framework":"corail"},"status":{"phase":"Hibernating","replicas":1}}"#;
        let agent = Agent::decode(json).unwrap();
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
        let text = status.to_string();
        let raw = serde_json::from_str(&text).unwrap();
        let read = read_status(Some(raw), |status: &mut FlowSetStatus| &mut status.workload.machine).unwrap();
        assert_eq!(read, Some(serde_json::from_value(status).unwrap()));
    }

    #[test]
    fn conditions_of_others_are_tested_for_and_given_back_as_they_are_stored() {
        let stored = serde_json::json!([{ "type": "Audited", "status": "True", "reason": "Passed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00.123+00:00" }]);
        let json = serde_json::json!({ "metadata": { "name": "a", "resourceVersion": "3" },
            "spec": { "name": "A", "framework": "corail" }, "status": { "phase": "Running", "conditions": stored } });
        let agent = Agent::decode(&json.to_string()).unwrap();
        assert_eq!(agent.status_json()["conditions"], stored);
    }
}
