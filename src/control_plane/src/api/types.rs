//! Response types of the operations, from which the OpenAPI document is generated. Summaries are kept as serialized JSON, and
//! lists are concatenated from them; these types describe the result.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::fleet::{Ready, ServerFacts, Summary};

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

/// One thing that an object did: a move, or a wait or retry (from = to).
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// Its number in the object's history.
    pub(crate) seq: i64,
    /// When it was decided, RFC 3339.
    pub(crate) at: String,
    /// The phase before; empty for the first one.
    pub(crate) from: String,
    /// The phase after.
    pub(crate) to: String,
    /// The action or rule that decided.
    pub(crate) action: String,
    /// Why, as one sentence.
    pub(crate) reason: String,
    /// How long the step took, in milliseconds.
    pub(crate) took_ms: i64,
    /// Joins it with the operator's log.
    pub(crate) trace_id: String,
}

impl From<&meta::HistoryEntry> for Step {
    fn from(entry: &meta::HistoryEntry) -> Self {
        Self {
            seq: entry.seq,
            at: entry.at.0.to_string(),
            from: entry.from.clone(),
            to: entry.to.clone(),
            action: entry.action.clone(),
            reason: entry.reason.clone(),
            took_ms: entry.took_ms,
            trace_id: entry.trace_id.clone(),
        }
    }
}

/// What an object did.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Trace {
    /// Its steps, oldest first.
    pub(super) entries: Vec<Step>,
    /// Steps that are not kept: the first and the last number of each gap.
    pub(super) gaps: Vec<(i64, i64)>,
}

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

/// Events about an object.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Events {
    /// All of them, the newest first.
    pub(super) items: Vec<Event>,
}

/// An Event.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
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

/// The state machine of a kind.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Machine {
    /// Its phases, in the order in which a healthy object sees them.
    pub(super) phases: Vec<&'static str>,
    /// Its moves.
    pub(super) edges: Vec<Edge>,
}

/// A move.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Edge {
    /// The phase before; empty: none yet; `*`: any but Terminating.
    pub(super) from: &'static str,
    /// The phase after.
    pub(super) to: &'static str,
    /// The action or rule that moves.
    pub(super) by: &'static str,
    /// When.
    pub(super) why: &'static str,
}

/// Who refers to what.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Graph {
    /// Every object, and those that are referred to and missing.
    pub(super) nodes: Vec<Node>,
    /// Every reference.
    pub(super) edges: Vec<Link>,
}

/// An object in the graph.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Node {
    /// Its kind.
    pub(super) kind: String,
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// Its phase; null: it has none, or you may not see it.
    pub(super) phase: Option<String>,
    /// Its Ready condition; Unknown too if it is missing, or you may not see it.
    pub(super) ready: Ready,
    /// Whether it is not there.
    pub(super) missing: bool,
}

/// A reference.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Link {
    /// Who refers: Kind/namespace/name.
    pub(super) from: String,
    /// To what: Kind/namespace/name.
    pub(super) to: String,
    /// Whether that is missing, or in Error or Failed.
    pub(super) broken: bool,
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
    /// How callers are told apart: kubernetes or none.
    pub(super) auth: &'static str,
    /// The caller's name; null where callers are not told apart.
    pub(super) user: Option<String>,
}

/// What is told live of a step of some object.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Transition {
    /// The object's kind.
    pub(crate) kind: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// The step.
    #[serde(flatten)]
    pub(crate) step: Step,
}

impl From<store::TransitionRow> for Step {
    fn from(row: store::TransitionRow) -> Self {
        let store::TransitionRow { seq, at, from, to, action, reason, took_ms, trace_id } = row;
        Self { seq, at: at.to_string(), from, to, action, reason, took_ms, trace_id }
    }
}

impl From<store::ObjectTransition> for Transition {
    fn from(row: store::ObjectTransition) -> Self {
        let store::ObjectTransition { kind, namespace, name, uid, step } = row;
        Self { kind, namespace, name, uid, step: step.into() }
    }
}

/// How far what happened is stored in the database.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct History {
    /// How long the oldest change that is not stored yet has been waiting, in seconds; 0: everything is stored.
    pub(super) behind_seconds: u64,
    /// Why nothing is stored for now; null: the database works.
    pub(super) problem: Option<&'static str>,
}

/// A page of what happened.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Transitions {
    /// Steps, the newest first.
    pub(super) items: Vec<Transition>,
    /// What to send as `before` for the next page; absent on the last one.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}
