//! What is written: the rows of one object.

use jiff::Timestamp;

/// What an object is called.
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
    /// What it is called.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its resource version, as a number.
    pub version: i64,
    /// When this version was seen.
    pub observed_at: Timestamp,
    /// Its row in `workloads`; kinds that run no Pods have none.
    pub workload: Option<WorkloadRow>,
    /// Its row in `tool_servers`, if it is a server.
    pub server: Option<ToolServerRow>,
    /// What is to be added to `transitions`.
    pub steps: Vec<TransitionRow>,
}

impl Record {
    /// About how many bytes of text are written of it.
    pub fn size(&self) -> usize {
        let tool = |tool: &ServerTool| tool.name.len() + tool.description.len() + tool.input_schema.len();
        let tools = self.server.iter().filter_map(|server| server.tools.as_ref()).flat_map(|set| &set.tools);
        let workload = self.workload.as_ref().map_or(0, |workload| workload.spec.len() + workload.status.len());
        let steps = self.steps.iter().map(|step| step.reason.len() + step.trace_id.len());
        workload + tools.map(tool).sum::<usize>() + steps.sum::<usize>()
    }
}

/// A row of `workloads`, without its key.
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

/// A row of `tool_servers`, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServerRow {
    /// What it is for, for people.
    pub description: String,
    /// How it speaks.
    pub protocol: String,
    /// Its endpoint.
    pub url: String,
    /// Its phase; empty: none yet.
    pub phase: String,
    /// When its tools last changed; empty: never known.
    pub tools_changed_at: String,
    /// Its tools as of this version; `None`: not known, those that are stored stay.
    pub tools: Option<ToolSet>,
}

/// All tools of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSet {
    /// Digest of their definitions; empty: it never told them.
    pub digest: String,
    /// They, in the server's order.
    pub tools: Vec<ServerTool>,
}

/// A row of `tools`, without its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTool {
    /// Its name at the server.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments, as JSON; empty: none.
    pub input_schema: String,
}

/// A step of an object: a row of `transitions`, without what the object is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionRow {
    /// Its number within the object.
    pub seq: i64,
    /// When it was decided.
    pub at: Timestamp,
    /// The phase before; empty for the first.
    pub from: String,
    /// The phase after.
    pub to: String,
    /// The action or rule that decided.
    pub action: String,
    /// Why.
    pub reason: String,
    /// How long it took, in milliseconds.
    pub took_ms: i64,
    /// Joins it with the operator's phase trace.
    pub trace_id: String,
}

/// An object that is gone. Its row goes, and so does one of an object that had its name before; one that was made since stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// What it was called.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// The last resource version that it is known to have had.
    pub version: i64,
}

/// What is written in one transaction. No object is in it twice.
#[derive(Debug, Default)]
pub struct Batch {
    /// Newest versions.
    pub records: Vec<Record>,
    /// What is gone; its transitions stay.
    pub deletions: Vec<Deletion>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.deletions.is_empty()
    }
}

/// A time as it is stored: always as long, so that texts sort as times do.
pub(super) fn timestamp_text(at: Timestamp) -> String {
    format!("{at:.6}")
}
