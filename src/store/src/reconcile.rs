//! Reconciliation at the start of a process: the rows of a kind are compared with a complete list of it.
//!
//! Rows of deleted objects are removed. A row that is newer than everything in the list is unconfirmed: either another process
//! is ahead of this one, or the cluster was restored from a backup. It is left as it is, and returned. If a later comparison,
//! by a process that certainly follows the cluster, finds the same row again, no process is ahead, and the object in the list
//! replaces the row. Steps are deleted only together with that: a history that is empty or cannot be read proves nothing.

use std::collections::{HashMap, HashSet};

use sqlx::{AnyConnection, Row as _};

use super::{
    database::Writer,
    error::StoreError,
    record::{Deletion, ObjectKey},
    sql::Sql,
    write::remove,
};

/// Objects of one query.
const UIDS_PER_QUERY: usize = 500;

/// Version of an object in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVersion {
    /// Its key.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its resource version, as a number.
    pub version: i64,
    /// The number of its last step; 0: it has none.
    pub last_step: i64,
}

/// Rows that are newer than the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unconfirmed {
    /// Table, key and version of each row.
    rows: HashSet<(&'static str, ObjectKey, i64)>,
}

impl Unconfirmed {
    /// Reports whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Keeps the rows that are also in `others`.
    pub fn retain_common(&mut self, others: &Self) {
        self.rows.retain(|row| others.rows.contains(row));
    }
}

/// Result of the comparison of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindComparison {
    /// Objects whose row in `workloads` is up to date, with uid and version.
    pub workloads: HashMap<ObjectKey, (String, i64)>,
    /// Number of the last stored step of each object, by uid, unless its steps must be written again.
    pub last_steps: HashMap<String, i64>,
    /// Number of removed rows, whose objects are deleted.
    pub removed: usize,
    /// Number of rows from before a restore: the next write of their objects replaces them.
    pub undone: usize,
    /// Rows that are newer than the list.
    pub unconfirmed: Unconfirmed,
}

impl Writer {
    /// Compares the rows of a kind with all objects of it in these namespaces; empty: in all. Rows in other namespaces belong
    /// to other processes. `doubts` are the unconfirmed rows of an earlier comparison; those that are found again are
    /// confirmed.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn compare(
        &mut self,
        kind: &'static str,
        namespaces: &[String],
        listed: &[StoredVersion],
        doubts: &Unconfirmed,
    ) -> Result<KindComparison, StoreError> {
        let look = RowComparison {
            kind,
            namespaces,
            by_key: listed.iter().map(|head| (&head.key, head)).collect(),
            newest: listed.iter().map(|head| head.version).max().unwrap_or_default(),
            unconfirmed: doubts,
        };
        self.transact(async |connection| {
            let mut known = KindComparison::default();
            compare_steps(connection, listed, &mut known).await?;
            for table in [&WORKLOADS, &SERVERS] {
                look.compare_rows(connection, table, &mut known).await?;
            }
            Ok(known)
        })
        .await
    }
}

/// Table with one row for each object.
struct ComparedTable {
    name: &'static str,
    select_versions: &'static str,
    undo: &'static str,
}

const WORKLOADS: ComparedTable = ComparedTable {
    name: "workloads",
    select_versions: "SELECT namespace, name, uid, resource_version FROM workloads WHERE kind = ",
    undo: "UPDATE workloads SET resource_version = 0 WHERE (kind, namespace, name) = ",
};
const SERVERS: ComparedTable = ComparedTable {
    name: "tool_servers",
    select_versions: "SELECT namespace, name, uid, resource_version FROM tool_servers WHERE kind = ",
    undo: "UPDATE tool_servers SET resource_version = 0 WHERE (kind, namespace, name) = ",
};

/// Comparison of one kind's rows with its list.
struct RowComparison<'a> {
    kind: &'static str,
    namespaces: &'a [String],
    by_key: HashMap<&'a ObjectKey, &'a StoredVersion>,
    newest: i64,
    unconfirmed: &'a Unconfirmed,
}

impl RowComparison<'_> {
    async fn compare_rows(
        &self,
        connection: &mut AnyConnection,
        table: &ComparedTable,
        known: &mut KindComparison,
    ) -> Result<(), sqlx::Error> {
        let mut gone = Vec::new();
        for row in Sql::new(table.select_versions).value(self.kind).query(true).fetch_all(&mut *connection).await? {
            let (namespace, name) = (row.try_get("namespace")?, row.try_get("name")?);
            let key = ObjectKey { kind: self.kind, namespace, name };
            let (uid, version): (String, i64) = (row.try_get("uid")?, row.try_get("resource_version")?);
            let head = self.by_key.get(&key);
            let is_newer = version > head.map_or(self.newest, |head| head.version);
            let doubt = (table.name, key, version);
            let confirmed = self.unconfirmed.rows.contains(&doubt);
            let (_, key, _) = &doubt;
            match head {
                None if !self.namespaces.is_empty() && !self.namespaces.contains(&key.namespace) => {}
                _ if is_newer && !confirmed => drop(known.unconfirmed.rows.insert(doubt)),
                None => gone.push(Deletion { key: key.clone(), uid, version }),
                // The row stays readable; the next write of the object is newer than version 0.
                Some(head) if is_newer => {
                    let key = [self.kind.into(), (&key.namespace).into(), (&key.name).into()];
                    let undo = Sql::new(table.undo).rows([key]).text(" AND resource_version = ").value(version);
                    // From here on the row is locked. If it has been written since, another process was ahead, and no row is
                    // affected.
                    if undo.query(true).execute(&mut *connection).await?.rows_affected() > 0 {
                        known.undone += 1;
                        known.last_steps.remove(&uid);
                        if uid == head.uid {
                            forget_steps(connection, head).await?;
                        }
                    }
                }
                Some(head) if version == head.version && uid == head.uid && table.name == WORKLOADS.name => {
                    known.workloads.insert(key.clone(), (uid, version));
                }
                Some(_) => {}
            }
        }
        known.removed += gone.len();
        remove(connection, &gone).await
    }
}

/// Deletes the steps that an object no longer has in the restored cluster: those after its last one.
async fn forget_steps(connection: &mut AnyConnection, head: &StoredVersion) -> Result<(), sqlx::Error> {
    // An object without steps may also have a status that was cleared or cannot be read.
    if head.last_step == 0 {
        return Ok(());
    }
    let unknown = Sql::new("DELETE FROM transitions WHERE uid = ").value(&head.uid);
    let unknown = unknown.text(" AND seq > ").value(head.last_step);
    unknown.query(true).execute(connection).await.map(drop)
}

/// Queries the last stored step of each listed object. If more steps are stored than the object has, its entry is left out: the
/// cluster may have been restored, and the object's own steps are written over the stored ones.
async fn compare_steps(
    connection: &mut AnyConnection,
    listed: &[StoredVersion],
    known: &mut KindComparison,
) -> Result<(), sqlx::Error> {
    for some in listed.chunks(UIDS_PER_QUERY) {
        let last = Sql::new("SELECT uid, max(seq) AS last FROM transitions WHERE uid IN ");
        let last = last.list(some.iter().map(|head| (&head.uid).into())).text(" GROUP BY uid");
        let rows = last.query(some.len() == UIDS_PER_QUERY).fetch_all(&mut *connection).await?;
        let found = rows.iter().map(|row| Ok((row.try_get("uid")?, row.try_get("last")?)));
        let found: HashMap<String, i64> = found.collect::<Result<_, sqlx::Error>>()?;
        for head in some {
            if let Some(last) = found.get(&head.uid).filter(|last| **last <= head.last_step) {
                known.last_steps.insert(head.uid.clone(), *last);
            }
        }
    }
    Ok(())
}
