//! Decodes the objects of our own kinds: whole, but for `managedFields`, which nobody reads and which would be half of
//! their memory.

use std::collections::BTreeMap;

use crds::{Agent, AgentSpec, ReferenceStatus, Tool, ToolSpec, WorkloadStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;

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

impl Custom for Agent {
    const RESOURCE: Resource = Resource::AGENT;

    fn decode(json: &str) -> Result<Self, serde_json::Error> {
        let Wire { metadata, spec, status } = serde_json::from_str::<Wire<AgentSpec, WorkloadStatus>>(json)?;
        Ok(Self { metadata: metadata.into(), spec, status })
    }
}

impl Custom for Tool {
    const RESOURCE: Resource = Resource::TOOL;

    fn decode(json: &str) -> Result<Self, serde_json::Error> {
        let Wire { metadata, spec, status } = serde_json::from_str::<Wire<ToolSpec, ReferenceStatus>>(json)?;
        Ok(Self { metadata: metadata.into(), spec, status })
    }
}

#[derive(Deserialize)]
struct Wire<Spec, Status> {
    metadata: Meta,
    spec: Spec,
    #[serde(default = "Option::default")]
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
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

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
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
}
