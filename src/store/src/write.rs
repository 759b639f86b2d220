//! Writes of changed objects.
//!
//! Within a transaction all rows are written in the order of their keys, deletions first: two processes that mirror the same
//! cluster then wait for each other and rarely deadlock. If PostgreSQL detects a deadlock, it refuses one of them, which writes
//! again.

use jiff::Timestamp;
use sqlx::{AnyConnection, Row as _};

use super::{
    database::Writer,
    error::StoreError,
    record::{Batch, Deletion, ObjectKey, Record, ToolServerRow, ToolSet, TransitionRow, WorkloadRow, timestamp_text},
    sql::Sql,
};

/// Rows of one statement, well below SQLite's limit of 32 766 parameters.
const ROWS_PER_STATEMENT: usize = 200;
/// Transitions that one transaction deletes.
const TRANSITIONS_PER_DELETE: i64 = 1_000;

const WORKLOADS: &str = "INSERT INTO workloads \
    (kind, namespace, name, uid, generation, resource_version, phase, spec, status, observed_at) VALUES ";
const UPSERT_WORKLOADS: &str = " ON CONFLICT (kind, namespace, name) DO UPDATE SET \
    uid = excluded.uid, generation = excluded.generation, resource_version = excluded.resource_version, \
    phase = excluded.phase, spec = excluded.spec, status = excluded.status, observed_at = excluded.observed_at \
    WHERE workloads.resource_version < excluded.resource_version";

const SERVERS: &str = "INSERT INTO tool_servers \
    (kind, namespace, name, uid, resource_version, tools_digest, description, protocol, url, phase, tools_changed_at) \
    VALUES ";
/// An equal version replaces the row, too, because its tools may have become known later. The digest is that of the stored
/// tools, so only [`replace_tools`] sets it.
const UPSERT_SERVERS: &str = " ON CONFLICT (kind, namespace, name) DO UPDATE SET \
    uid = excluded.uid, resource_version = excluded.resource_version, description = excluded.description, \
    protocol = excluded.protocol, url = excluded.url, phase = excluded.phase, \
    tools_changed_at = excluded.tools_changed_at \
    WHERE tool_servers.resource_version <= excluded.resource_version \
    RETURNING tools_digest";

const TOOLS: &str = "INSERT INTO tools \
    (server_kind, server_namespace, server_name, name, description, input_schema, position) VALUES ";

const TRANSITIONS: &str = "INSERT INTO transitions \
    (uid, seq, kind, namespace, name, at, \"from\", \"to\", action, reason, took_ms, trace_id) VALUES ";
/// A number is not used twice, unless the cluster was restored from a backup: then the newly reported step replaces the stored
/// one.
const UPSERT_TRANSITIONS: &str = " ON CONFLICT (uid, seq) DO UPDATE SET \
    kind = excluded.kind, namespace = excluded.namespace, name = excluded.name, at = excluded.at, \
    \"from\" = excluded.\"from\", \"to\" = excluded.\"to\", action = excluded.action, reason = excluded.reason, \
    took_ms = excluded.took_ms, trace_id = excluded.trace_id \
    WHERE transitions.at <> excluded.at";

impl Writer {
    /// Writes all of a batch, or nothing. Rows that are newer in the database stay as they are.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut records: Vec<&Record> = batch.records.iter().collect();
        records.sort_by(|one, other| one.key.cmp(&other.key));
        self.transact(async |connection| {
            remove(connection, &batch.deletions).await?;
            write_workloads(connection, &records).await?;
            for record in &records {
                if let Some(server) = &record.server {
                    write_server(connection, record, server).await?;
                }
            }
            write_steps(connection, &records).await
        })
        .await
    }

    /// Deletes a batch of the transitions before this time, and reports whether there may be more.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn delete_transitions_before(&mut self, before: Timestamp) -> Result<bool, StoreError> {
        let old = Sql::new("DELETE FROM transitions WHERE (uid, seq) IN (SELECT uid, seq FROM transitions WHERE at < ");
        let old = old.value(&timestamp_text(before)).text(" LIMIT ").value(TRANSITIONS_PER_DELETE).text(")");
        let deleted = self.transact(async |connection| old.query(true).execute(connection).await).await?;
        Ok(deleted.rows_affected() >= TRANSITIONS_PER_DELETE.unsigned_abs())
    }
}

/// Deletes the rows of deleted objects; rows of later objects with the same names stay.
pub(super) async fn remove(connection: &mut AnyConnection, gone: &[Deletion]) -> Result<(), sqlx::Error> {
    let mut gone: Vec<&Deletion> = gone.iter().collect();
    gone.sort_by(|one, other| one.key.cmp(&other.key));
    for some in gone.chunks(ROWS_PER_STATEMENT) {
        for table in ["DELETE FROM workloads WHERE ", "DELETE FROM tool_servers WHERE "] {
            removal(table, some).query(false).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Creates the statement that deletes these rows. Each row is given by its whole key, so that both databases find it by the
/// index: for a list of keys SQLite would scan the table. The version and uid are compared when the row's lock is held.
pub(super) fn removal(table: &'static str, gone: &[&Deletion]) -> Sql {
    let mut delete = Sql::new(table);
    for (at, Deletion { key, uid, version }) in gone.iter().enumerate() {
        delete = delete.text(if at == 0 { "(kind = " } else { " OR (kind = " }).value(key.kind);
        delete = delete.text(" AND namespace = ").value(&key.namespace).text(" AND name = ").value(&key.name);
        delete = delete.text(" AND (resource_version <= ").value(*version).text(" OR uid = ").value(uid).text("))");
    }
    delete
}

async fn write_workloads(connection: &mut AnyConnection, records: &[&Record]) -> Result<(), sqlx::Error> {
    let rows: Vec<_> = records.iter().filter_map(|record| Some((record, record.workload.as_ref()?))).collect();
    for some in rows.chunks(ROWS_PER_STATEMENT) {
        let seen: Vec<String> = some.iter().map(|(record, _)| timestamp_text(record.observed_at)).collect();
        let rows = some.iter().zip(&seen).map(|((record, workload), seen)| {
            let ObjectKey { kind, namespace, name } = &record.key;
            let WorkloadRow { generation, phase, spec, status } = workload;
            let (uid, version) = (&record.uid, record.version);
            [
                (*kind).into(),
                namespace.into(),
                name.into(),
                uid.into(),
                (*generation).into(),
                version.into(),
                phase.into(),
                spec.into(),
                status.into(),
                seen.into(),
            ]
        });
        let insert = Sql::new(WORKLOADS).rows(rows).text(UPSERT_WORKLOADS);
        insert.query(some.len() == 1).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Writes a server's row, which locks it, and then its tools if they have changed.
async fn write_server(
    connection: &mut AnyConnection,
    record: &Record,
    server: &ToolServerRow,
) -> Result<(), sqlx::Error> {
    let ObjectKey { kind, namespace, name } = &record.key;
    let ToolServerRow { description, protocol, url, phase, tools_changed_at, tools } = server;
    let row = [
        (*kind).into(),
        namespace.into(),
        name.into(),
        (&record.uid).into(),
        record.version.into(),
        "".into(),
        description.into(),
        protocol.into(),
        url.into(),
        phase.into(),
        tools_changed_at.into(),
    ];
    let upsert = Sql::new(SERVERS).rows([row]).text(UPSERT_SERVERS).query(true);
    let Some(row) = upsert.fetch_optional(&mut *connection).await? else { return Ok(()) };
    let before: String = row.try_get("tools_digest")?;
    match tools {
        Some(tools) if tools.digest != before => replace_tools(connection, &record.key, tools).await,
        _ => Ok(()),
    }
}

async fn replace_tools(connection: &mut AnyConnection, key: &ObjectKey, set: &ToolSet) -> Result<(), sqlx::Error> {
    let ObjectKey { kind, namespace, name } = key;
    let delete = Sql::new("DELETE FROM tools WHERE (server_kind, server_namespace, server_name) = ");
    let delete = delete.rows([[(*kind).into(), namespace.into(), name.into()]]);
    delete.query(true).execute(&mut *connection).await?;
    let numbered: Vec<_> = (0_i64..).zip(&set.tools).collect();
    for some in numbered.chunks(ROWS_PER_STATEMENT) {
        let rows = some.iter().map(|(position, tool)| {
            let server = [(*kind).into(), namespace.into(), name.into()];
            let [kind, namespace, name] = server;
            let (tool, text, schema) = (&tool.name, &tool.description, &tool.input_schema);
            [kind, namespace, name, tool.into(), text.into(), schema.into(), (*position).into()]
        });
        Sql::new(TOOLS).rows(rows).query(false).execute(&mut *connection).await?;
    }
    let digest = Sql::new("UPDATE tool_servers SET tools_digest = ").value(&set.digest);
    let digest = digest.text(" WHERE (kind, namespace, name) = ");
    let digest = digest.rows([[(*kind).into(), namespace.into(), name.into()]]);
    digest.query(true).execute(connection).await.map(drop)
}

async fn write_steps(connection: &mut AnyConnection, records: &[&Record]) -> Result<(), sqlx::Error> {
    let mut steps: Vec<(&Record, &TransitionRow, String)> = Vec::new();
    for record in records {
        steps.extend(record.steps.iter().map(|step| (*record, step, timestamp_text(step.at))));
    }
    steps.sort_by(|(one, step, _), (other, later, _)| (&one.uid, step.seq).cmp(&(&other.uid, later.seq)));
    steps.dedup_by(|(one, step, _), (other, later, _)| (&one.uid, step.seq) == (&other.uid, later.seq));
    for some in steps.chunks(ROWS_PER_STATEMENT) {
        let rows = some.iter().map(|(record, step, at)| {
            let ObjectKey { kind, namespace, name } = &record.key;
            let TransitionRow { seq, at: _, from, to, action, reason, took_ms, trace_id } = step;
            [
                (&record.uid).into(),
                (*seq).into(),
                (*kind).into(),
                namespace.into(),
                name.into(),
                at.into(),
                from.into(),
                to.into(),
                action.into(),
                reason.into(),
                (*took_ms).into(),
                trace_id.into(),
            ]
        });
        let insert = Sql::new(TRANSITIONS).rows(rows).text(UPSERT_TRANSITIONS);
        insert.query(some.len() == 1).execute(&mut *connection).await?;
    }
    Ok(())
}
