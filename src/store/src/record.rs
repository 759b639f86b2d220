//! Rows of one object.

use jiff::Timestamp;

/// Key of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind, such as Agent.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// One version of an object, as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its key.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its resource version, as a number.
    pub version: i64,
    /// Time at which this version was seen.
    pub observed_at: Timestamp,
    /// Its row in `workloads`; kinds that run no Pods have none.
    pub workload: Option<WorkloadRow>,
    /// Its row in `tool_servers`, if it is a server.
    pub server: Option<ToolServerRow>,
    /// Its new rows in `transitions`.
    pub steps: Vec<TransitionRow>,
}

impl Record {
    /// Returns the approximate number of bytes of text in its rows.
    pub fn size(&self) -> usize {
        let tool = |tool: &ServerTool| tool.name.len() + tool.description.len() + tool.input_schema.len();
        let tools = self.server.iter().filter_map(|server| server.tools.as_ref()).flat_map(|set| &set.tools);
        let workload = self.workload.as_ref().map_or(0, |workload| workload.spec.len() + workload.status.len());
        let steps = self.steps.iter().map(|step| step.reason.len() + step.trace_id.len());
        workload + tools.map(tool).sum::<usize>() + steps.sum::<usize>()
    }
}

/// Row of `workloads`, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadRow {
    /// Generation of the spec.
    pub generation: i64,
    /// Its phase; empty: none yet.
    pub phase: String,
    /// The spec as JSON, secrets masked.
    pub spec: String,
    /// The status as JSON.
    pub status: String,
}

/// Row of `tool_servers`, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServerRow {
    /// Its description for people.
    pub description: String,
    /// Its protocol or transport.
    pub protocol: String,
    /// Its endpoint.
    pub url: String,
    /// Its phase; empty: none yet.
    pub phase: String,
    /// Time at which its tools last changed; empty: never known.
    pub tools_changed_at: String,
    /// Its tools as of this version; `None`: not known, and the stored ones stay.
    pub tools: Option<ToolSet>,
}

/// All tools of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSet {
    /// Digest of their definitions; empty: the server never listed them.
    pub digest: String,
    /// The tools, in the server's order.
    pub tools: Vec<ServerTool>,
}

/// Row of `tools`, without its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTool {
    /// Its name at the server.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The JSON Schema of its arguments, as JSON; empty: none.
    pub input_schema: String,
}

/// Step of an object: a row of `transitions`, without the object's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionRow {
    /// Its number within the object.
    pub seq: i64,
    /// Time of the decision.
    pub at: Timestamp,
    /// The phase before; empty for the first.
    pub from: String,
    /// The phase after.
    pub to: String,
    /// The action or rule that decided.
    pub action: String,
    /// The reason.
    pub reason: String,
    /// Duration in milliseconds.
    pub took_ms: i64,
    /// Correlates it with the operator's phase trace.
    pub trace_id: String,
}

/// Deleted object. Its row is deleted, as is one of an earlier object under the same name; one of a later object stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// Its key.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// The last resource version that it is known to have had.
    pub version: i64,
}

/// Content of one transaction. No object is in it twice.
#[derive(Debug, Default)]
pub struct Batch {
    /// Newest versions.
    pub records: Vec<Record>,
    /// Deleted objects; their transitions stay.
    pub deletions: Vec<Deletion>,
}

impl Batch {
    /// Reports whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.deletions.is_empty()
    }
}

/// Formats a time as it is stored: with a fixed width, so that texts sort as times do.
pub(super) fn timestamp_text(at: Timestamp) -> String {
    format!("{at:.6}")
}
