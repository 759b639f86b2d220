//! Response types of the operations, from which the OpenAPI document is generated. Summaries are kept as serialized JSON, and
//! lists are concatenated from them; these types describe the result.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::step_types::Step;
use crate::fleet::{ServerFacts, Summary};

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Page {
    /// The objects.
    pub(super) items: Vec<Summary>,
    /// How many objects the whole list has.
    pub(super) total: usize,
    /// What to send as `continue` for the next page; absent on the last one.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

/// A page of the whole fleet.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FleetPage {
    /// The page.
    #[serde(flatten)]
    pub(super) page: Page,
    /// Of each kind, how many objects are in each phase, whatever kinds and phases are asked for; without a phase: none.
    pub(super) counts: BTreeMap<String, BTreeMap<String, usize>>,
}

/// An object, its credentials masked.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object {
    /// agents.recif.dev/v1
    pub(super) api_version: String,
    /// Its kind.
    pub(super) kind: String,
    /// Its metadata, as Kubernetes has it.
    pub(super) metadata: BTreeMap<String, Value>,
    /// What is asked for.
    pub(super) spec: BTreeMap<String, Value>,
    /// What the operator last saw and did; null: nothing is known of it.
    pub(super) status: Option<BTreeMap<String, Value>>,
}

/// The status of an object; null: nothing is known of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Status(pub(super) Option<BTreeMap<String, Value>>);

/// Why an object is as it is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Why {
    /// The answer, in one sentence, with what to do.
    pub(super) sentence: String,
    /// Its phase; null: it has none yet.
    pub(super) phase: Option<String>,
    /// The condition that says why; null: none does.
    pub(super) condition: Option<Condition>,
    /// What it refers to and cannot use, and what keeps its Pods from being ready, one line each; the same that
    /// `recif why` adds, but for the words of the Pods' logs.
    pub(super) waiting_for: Vec<String>,
    /// Its last steps, oldest first.
    pub(super) steps: Vec<Step>,
    /// What hangs on it.
    pub(super) children: Vec<Child>,
}

/// A condition.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub(super) type_: String,
    /// True, False or Unknown.
    pub(super) status: String,
    /// The reason.
    pub(super) reason: String,
    /// The message.
    pub(super) message: String,
    /// Since when, RFC 3339.
    pub(super) since: String,
}

/// Something that hangs on an object.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Child {
    /// Its kind.
    pub(super) kind: String,
    /// Its name.
    pub(super) name: String,
    /// Its uid; empty: not known.
    pub(super) uid: String,
    /// How it is: of a Deployment its ready Pods, of a Pod its state, of a Tool its phase, of others Applied or Missing.
    pub(super) state: String,
    /// What is wrong with it; empty: nothing.
    pub(super) message: String,
}

/// What hangs on an object.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Children {
    /// All of it.
    pub(super) items: Vec<Child>,
}

/// What was rendered from an object.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Rendered {
    /// All files.
    pub(super) files: Vec<File>,
}

/// A rendered file or variable.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct File {
    /// What holds it, such as ConfigMap/my-agent-config.
    pub(super) object: String,
    /// Its key; `*` stands for all keys of a Secret, which are not read here.
    pub(super) name: String,
    /// Its text, masked in a Secret.
    pub(super) text: String,
}

/// Events about an object, and warnings about its Deployment, ReplicaSets and Pods.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Events {
    /// All of them, the newest first.
    pub(super) items: Vec<Event>,
}

/// An Event.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    /// What it is about: Kind/name.
    pub(super) object: String,
    /// Normal or Warning.
    #[serde(rename = "type")]
    pub(super) type_: String,
    /// The reason.
    pub(super) reason: String,
    /// The message.
    pub(super) message: String,
    /// How often it happened.
    pub(super) count: i32,
    /// When first, RFC 3339.
    pub(super) first_at: String,
    /// When last, RFC 3339.
    pub(super) last_at: String,
}

/// How busy a workload is.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Load {
    /// When its Pods were asked, RFC 3339.
    pub(crate) at: String,
    /// Each Pod that answered.
    pub(crate) pods: Vec<PodLoad>,
    /// Requests in flight in all of them.
    pub(crate) in_flight: u64,
    /// Pods that did not answer.
    pub(crate) silent: usize,
}

/// How busy a Pod is.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodLoad {
    /// Its name.
    pub(crate) name: String,
    /// Requests in flight.
    pub(crate) in_flight: u64,
    /// How many it takes at a time; 0: any number.
    pub(crate) concurrency: u64,
}

/// MCP servers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ToolServers {
    /// All of them.
    pub(super) items: Vec<ToolServer>,
}

/// An MCP server.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ToolServer {
    /// As in every list.
    #[serde(flatten)]
    pub(super) summary: Summary,
    /// What servers have besides.
    #[serde(flatten)]
    pub(super) facts: ServerFacts,
}

/// The tools of a server.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tools {
    /// All of them, by name.
    pub(super) items: Vec<ToolDefinition>,
    /// Where the gateway takes calls to the server; null: it does not route to it.
    pub(super) call_path: Option<String>,
}

/// A tool of a server.
#[derive(Debug, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolDefinition {
    /// Its name.
    pub(super) name: String,
    /// What it is for.
    #[serde(default)]
    pub(super) description: String,
    /// What it takes, as JSON Schema.
    #[serde(default)]
    pub(super) input_schema: Value,
}

/// Who asks.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Me {
    /// How callers are identified: kubernetes or none.
    pub(super) auth: &'static str,
    /// The caller's name; null where callers are not identified.
    pub(super) user: Option<String>,
}
