//! What is compared when a process starts: the rows of a kind with a complete list of it.
//!
//! Rows whose objects are gone are removed. A row that is newer than the list means that the cluster was restored from a
//! backup, or that another process is ahead of this one. Either way it is taken for what the list says: its version is set to
//! zero, so that the next write of the object replaces it. The process that is ahead loses nothing by that, for what it knows
//! reaches this one too, a moment later.

use std::collections::{HashMap, HashSet};

use sqlx::{AnyConnection, Row as _};

use super::{
    database::Writer,
    error::StoreError,
    record::{Gone, ObjectKey},
    sql::Sql,
    write::remove,
};

/// Which version of an object there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What it is called.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its resource version, as a number.
    pub version: i64,
    /// The number of its last step; 0: it has none.
    pub last_step: i64,
}

/// What is stored of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The objects whose row in `workloads` is up to date, with uid and version.
    pub workloads: HashMap<ObjectKey, (String, i64)>,
    /// The last step of each object, by uid, as far as its steps need not be written anew.
    pub last_steps: HashMap<String, i64>,
    /// How many rows were removed, because their objects are gone.
    pub removed: usize,
    /// How many rows are newer than the objects: they are written anew.
    pub newer: usize,
}

impl Writer {
    /// Compares the rows of a kind with all objects of it that there are, in these namespaces; empty: in all. Rows of other
    /// namespaces are somebody else's.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn compare(
        &mut self,
        kind: &'static str,
        namespaces: &[String],
        listed: &[Head],
    ) -> Result<Known, StoreError> {
        let by_key: HashMap<&ObjectKey, &Head> = listed.iter().map(|head| (&head.key, head)).collect();
        let by_uid: HashMap<&str, &Head> = listed.iter().map(|head| (head.uid.as_str(), head)).collect();
        self.transact(async |connection| {
            let mut known = Known::default();
            let mut doubted = HashSet::new();
            for table in [&WORKLOADS, &SERVERS] {
                let (mut gone, newer) = compare_rows(connection, table, kind, &by_key, &mut known).await?;
                gone.retain(|gone| namespaces.is_empty() || namespaces.contains(&gone.key.namespace));
                known.removed += gone.len();
                known.newer += newer.len();
                remove(connection, &gone).await?;
                for key in newer {
                    doubted.extend(by_key.get(&key).map(|head| head.uid.clone()));
                    let key = [kind.into(), (&key.namespace).into(), (&key.name).into()];
                    Sql::new(table.doubt).rows([key]).query(true).execute(&mut *connection).await?;
                }
            }
            compare_steps(connection, kind, &by_uid, &mut known).await?;
            known.last_steps.retain(|uid, _| !doubted.contains(uid));
            Ok(known)
        })
        .await
    }
}

/// A table with a row for each object.
struct Table {
    heads: &'static str,
    doubt: &'static str,
    is_workloads: bool,
}

const WORKLOADS: Table = Table {
    heads: "SELECT namespace, name, uid, resource_version FROM workloads WHERE kind = ",
    doubt: "UPDATE workloads SET resource_version = 0 WHERE (kind, namespace, name) = ",
    is_workloads: true,
};
const SERVERS: Table = Table {
    heads: "SELECT namespace, name, uid, resource_version FROM tool_servers WHERE kind = ",
    doubt: "UPDATE tool_servers SET resource_version = 0 WHERE (kind, namespace, name) = ",
    is_workloads: false,
};

/// The rows whose objects are gone, and those that are newer than they may be.
async fn compare_rows(
    connection: &mut AnyConnection,
    table: &Table,
    kind: &'static str,
    listed: &HashMap<&ObjectKey, &Head>,
    known: &mut Known,
) -> Result<(Vec<Gone>, Vec<ObjectKey>), sqlx::Error> {
    let (mut gone, mut newer) = (Vec::new(), Vec::new());
    for row in Sql::new(table.heads).value(kind).query(true).fetch_all(&mut *connection).await? {
        let key = ObjectKey { kind, namespace: row.try_get("namespace")?, name: row.try_get("name")? };
        let (uid, version): (String, i64) = (row.try_get("uid")?, row.try_get("resource_version")?);
        match listed.get(&key) {
            None => gone.push(Gone { key, uid }),
            Some(head) if version > head.version => newer.push(key),
            Some(head) if version == head.version && uid == head.uid && table.is_workloads => {
                known.workloads.insert(key, (uid, version));
            }
            Some(_) => {}
        }
    }
    Ok((gone, newer))
}

/// Removes steps that a restored cluster no longer knows of: those after the last one of their object.
async fn compare_steps(
    connection: &mut AnyConnection,
    kind: &'static str,
    listed: &HashMap<&str, &Head>,
    known: &mut Known,
) -> Result<(), sqlx::Error> {
    let last = Sql::new("SELECT uid, max(seq) AS last FROM transitions WHERE kind = ").value(kind);
    for row in last.text(" GROUP BY uid").query(true).fetch_all(&mut *connection).await? {
        let (uid, last): (String, i64) = (row.try_get("uid")?, row.try_get("last")?);
        match listed.get(uid.as_str()) {
            Some(head) if last > head.last_step => {
                let unknown = Sql::new("DELETE FROM transitions WHERE uid = ").value(&uid);
                let unknown = unknown.text(" AND seq > ").value(head.last_step);
                unknown.query(true).execute(&mut *connection).await?;
            }
            Some(_) => {
                known.last_steps.insert(uid, last);
            }
            None => {}
        }
    }
    Ok(())
}
