//! Transactions of limited size: few objects, because other writers wait meanwhile, and little text, because all of it is in
//! memory.

use store::{Batch, Deletion, Record};

/// Limit of the objects in one transaction.
pub(super) const MAX_OBJECTS: usize = 200;
/// Approximate limit of the text in one transaction, in bytes: the object that reaches it is the last.
const MAX_BYTES: usize = 4 << 20;

/// Transaction that is being assembled.
///
/// Invariant: `bytes` is the size of all records in `batch`.
#[derive(Debug, Default)]
pub(super) struct MirrorBatch {
    batch: Batch,
    bytes: usize,
}

impl MirrorBatch {
    /// Reports whether there is room for another object.
    pub(super) fn has_room(&self) -> bool {
        self.batch.records.len() < MAX_OBJECTS && self.bytes < MAX_BYTES
    }

    /// Adds an object in its newest version; of a deleted object, only its deletion and its steps.
    pub(super) fn add(&mut self, mut record: Record, is_gone: bool) {
        if is_gone {
            (record.workload, record.server) = (None, None);
            let Record { key, uid, version, .. } = &record;
            self.batch.deletions.push(Deletion { key: key.clone(), uid: uid.clone(), version: *version });
        }
        self.bytes += record.size();
        self.batch.records.push(record);
    }

    /// Returns the rows to write.
    pub(super) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.batch.records.len()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use store::{ObjectKey, ServerTool, ToolServerRow, ToolSet, WorkloadRow};

    use super::*;

    fn record(spec: usize, schema: usize) -> Record {
        let (text, status) = ("x".repeat(spec), String::new());
        let workload = WorkloadRow { generation: 1, phase: String::new(), spec: text, status };
        let tool = ServerTool { input_schema: "x".repeat(schema), ..ServerTool::default() };
        let tools = Some(ToolSet { digest: String::new(), tools: vec![tool] });
        let empty = String::new;
        let server = ToolServerRow {
            description: empty(),
            protocol: empty(),
            url: empty(),
            phase: empty(),
            tools_changed_at: empty(),
            tools,
        };
        Record {
            key: ObjectKey { kind: "MCPServer", namespace: "ns".into(), name: "a".into() },
            uid: "u".into(),
            version: 7,
            observed_at: Timestamp::UNIX_EPOCH,
            workload: Some(workload),
            server: Some(server),
            steps: Vec::new(),
        }
    }

    fn taken(record: &Record, is_gone: bool) -> usize {
        let mut portion = MirrorBatch::default();
        while portion.has_room() {
            portion.add(record.clone(), is_gone);
        }
        portion.len()
    }

    #[test]
    fn a_portion_is_full_by_objects_or_by_bytes() {
        let kib = 1 << 10;
        assert_eq!(taken(&record(kib, kib), false), 200);
        assert_eq!(taken(&record(1024 * kib, 0), false), 4);
        assert_eq!(taken(&record(0, 512 * kib), false), 8, "the definitions of tools are as large as any spec");
        assert_eq!(taken(&record(1024 * kib, 0), true), 200, "of what is gone nothing large is written");
        let mut portion = MirrorBatch::default();
        portion.add(record(1, 1), true);
        let Batch { records, deletions: gone } = portion.batch();
        assert_eq!((&records[0].workload, &records[0].server, gone[0].version), (&None, &None, 7));
    }
}
