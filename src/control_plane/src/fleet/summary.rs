//! Summary of an object, as lists show it.

use std::collections::BTreeMap;

use cluster::ObjectVersion;
use crds::{ApiKind, Role, StatusExplanation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::{CommonStatus, condition_type};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::columns::Column;

/// What a list tells of an object.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Its kind, such as Agent.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The version that this was read from.
    pub resource_version: String,
    /// The generation of its spec.
    pub generation: i64,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// Where it is in its life; null: nothing is known of it.
    pub phase: Option<String>,
    /// Its Ready condition.
    pub ready: Ready,
    /// The reason of its Ready condition.
    pub reason: String,
    /// The message of its Ready condition.
    pub message: String,
    /// Why it is not as its spec asks, and what to do, in one sentence; null when it is.
    pub why: Option<String>,
    /// When it came into its phase, RFC 3339; null: its history does not go back that far.
    pub since: Option<String>,
    /// Its Pods; null for a kind that runs none.
    pub replicas: Option<Replicas>,
    /// The kind's own printer columns, and of an agent the beginning of its description: title to text.
    pub columns: BTreeMap<String, String>,
}

/// A condition's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Ready {
    /// It is not.
    False,
    /// It is.
    True,
    /// Not reported.
    Unknown,
}

/// Pods of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Replicas {
    /// That the spec, or the scaler, asks for.
    pub desired: i64,
    /// That are ready.
    pub ready: i64,
}

impl Summary {
    /// Creates the summary of an object. Its `why` is set if the object needs attention.
    pub fn new(
        kind: &ApiKind,
        head: &ObjectVersion,
        metadata: &ObjectMeta,
        status: &CommonStatus,
        object: &Value,
        columns: &[Column],
        why: &StatusExplanation,
    ) -> Self {
        let condition = status.condition(condition_type::READY);
        let ready = match condition.map(|condition| condition.status.as_str()) {
            Some("True") => Ready::True,
            Some("False") => Ready::False,
            _ => Ready::Unknown,
        };
        let columns = columns.iter().filter_map(|column| Some((column.title.clone(), column.text(object)?)));
        Self {
            kind: kind.name.to_owned(),
            namespace: head.key.namespace.clone(),
            name: head.key.name.clone(),
            uid: head.uid.clone(),
            resource_version: head.resource_version.to_string(),
            generation: metadata.generation.unwrap_or_default(),
            created_at: metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
            phase: status.phase.clone(),
            ready,
            reason: condition.map(|condition| condition.reason.clone()).unwrap_or_default(),
            message: condition.map(|condition| condition.message.clone()).unwrap_or_default(),
            why: why.attention.then(|| why.sentence.clone()),
            since: why.since.map(|since| since.to_string()),
            replicas: (kind.role == Role::Workload).then(|| Replicas::read(object)),
            columns: columns.collect(),
        }
    }

    /// Returns the text that a search looks through, in lower case.
    pub fn haystack(&self) -> String {
        let own = [&self.kind, &self.namespace, &self.name, &self.reason].map(String::as_str);
        let more = [self.phase.as_deref(), self.why.as_deref()].into_iter().flatten();
        let columns = self.columns.values().map(String::as_str);
        own.into_iter().chain(more).chain(columns).collect::<Vec<_>>().join("\n").to_lowercase()
    }
}

impl Replicas {
    fn read(object: &Value) -> Self {
        let number = |path: &str| object.pointer(path).and_then(Value::as_i64);
        let asked = number("/spec/replicas").or_else(|| number("/spec/deployment/replicas")).unwrap_or(1);
        let scaled = object.pointer("/spec/scaling").is_some_and(|scaling| !scaling.is_null());
        let desired = if scaled { number("/status/desiredReplicas").unwrap_or(asked) } else { asked };
        Self { desired, ready: number("/status/replicas").unwrap_or_default() }
    }
}

/// Fields of a server besides its summary.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerFacts {
    /// How many tools it has; null: they are not known yet.
    pub tool_count: Option<i64>,
    /// Where it is: the URL of a remote one, the endpoint in the cluster of one that runs here; null: it has none yet.
    pub url: Option<String>,
    /// STREAMABLE_HTTP or SSE; of one that runs here the transport of its program: stdio or http.
    pub protocol: String,
}

impl ServerFacts {
    /// Reads the facts from an object of this kind; `None`: it is no server.
    pub fn read(kind: &ApiKind, object: &Value) -> Option<Self> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let (url, protocol) = match kind.name {
            "RemoteMCPServer" => (text("/spec/url"), text("/spec/protocol")),
            "MCPServer" => (text("/status/endpoint"), text("/spec/transportType")),
            _ => return None,
        };
        let tool_count = object.pointer("/status/toolCount").and_then(Value::as_i64);
        Some(Self { tool_count, url, protocol: protocol.unwrap_or_default() })
    }

    /// Serializes the facts as a JSON object.
    ///
    /// # Errors
    /// As serde.
    pub fn json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}
