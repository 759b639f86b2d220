//! Conversion of objects into rows of the database.

use crds::{Role, digest::sha256_hex};
use jiff::Timestamp;
use meta::Key;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use store::{self, ObjectKey, ServerTool, StoredVersion, ToolServerRow, ToolSet, TransitionRow, WorkloadRow};

use crate::fleet::{Record, ServerFacts};

/// Returns the key of an object's rows.
pub(super) fn key(record: &Record) -> ObjectKey {
    let Key { namespace, name } = record.key.clone();
    ObjectKey { kind: record.kind.name, namespace, name }
}

/// Returns its resource version.
pub(super) fn version(record: &Record) -> i64 {
    i64::try_from(record.version).unwrap_or(i64::MAX)
}

/// Returns its version, for the comparison with stored rows.
pub(super) fn head(record: &Record) -> StoredVersion {
    StoredVersion { key: key(record), uid: record.uid.to_string(), version: version(record), last_step: record.seq }
}

/// Converts an object into its rows, masked as in the read model. `tools` are the definitions of a server's tools, if they are
/// known; the steps are those after the step `after` that are not older than `since`.
pub(super) fn record(record: &Record, tools: Option<&str>, after: i64, since: Timestamp) -> store::Record {
    let object = record.object();
    let part = |name: &str| object.get(name).map_or_else(|| "{}".to_owned(), Value::to_string);
    let phase = record.phase.as_deref().unwrap_or_default().to_owned();
    let workload = (record.kind.role == Role::Workload).then(|| WorkloadRow {
        generation: record.generation,
        phase: phase.clone(),
        spec: part("spec"),
        status: part("status"),
    });
    let server = ServerFacts::read(record.kind, &object).map(|facts| ToolServerRow {
        description: text(&object, "/spec/description"),
        protocol: facts.protocol,
        url: facts.url.unwrap_or_default(),
        phase,
        tools_changed_at: text(&object, "/status/toolsChangedAt"),
        tools: tool_set(object.pointer("/status/toolsDigest").and_then(Value::as_str), tools),
    });
    let steps =
        record.history_after(after).into_iter().filter(|entry| entry.at.0 >= since).map(|entry| TransitionRow {
            seq: entry.seq,
            at: entry.at.0,
            from: entry.from,
            to: entry.to,
            action: entry.action,
            reason: entry.reason,
            took_ms: entry.took_ms,
            trace_id: entry.trace_id,
        });
    store::Record {
        key: key(record),
        uid: record.uid.to_string(),
        version: version(record),
        observed_at: Timestamp::now(),
        workload,
        server,
        steps: steps.collect(),
    }
}

/// Returns the tools to which a server's status refers, if the definitions have the digest in the status; `None`: they do not,
/// or are not known yet.
fn tool_set(digest: Option<&str>, definitions: Option<&str>) -> Option<ToolSet> {
    let Some(digest) = digest else { return Some(ToolSet::default()) };
    let definitions = definitions.filter(|text| sha256_hex(text.as_bytes()) == digest)?;
    let found: Vec<StoredToolDefinition<'_>> = serde_json::from_str(definitions).ok()?;
    let tool = |StoredToolDefinition { name, description, input_schema }| ServerTool {
        name,
        description,
        input_schema: input_schema.map_or_else(String::new, |schema: &RawValue| schema.get().to_owned()),
    };
    Some(ToolSet { digest: digest.to_owned(), tools: found.into_iter().map(tool).collect() })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredToolDefinition<'a> {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default, borrow)]
    input_schema: Option<&'a RawValue>,
}

fn text(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_those_that_the_status_speaks_of() {
        let text = r#"[{"description":"d","inputSchema":{"type":"object"},"name":"a","title":"A"},{"name":"b"}]"#;
        let digest = sha256_hex(text.as_bytes());
        let set = tool_set(Some(&digest), Some(text)).unwrap();
        let tool = |name: &str, description: &str, input_schema: &str| ServerTool {
            name: name.into(),
            description: description.into(),
            input_schema: input_schema.into(),
        };
        assert_eq!(set.tools, [tool("a", "d", r#"{"type":"object"}"#), tool("b", "", "")]);
        assert_eq!(set.digest, digest);
        assert_eq!(tool_set(Some(&digest), Some("[]")), None, "the ConfigMap is of another version");
        assert_eq!(tool_set(Some(&digest), None), None, "the ConfigMap was not seen yet");
        assert_eq!(tool_set(None, Some(text)), Some(ToolSet::default()), "the server was never asked");
    }
}
