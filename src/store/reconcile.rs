//! What is compared when a process starts: the rows of a kind with a complete list of it.
//!
//! Rows whose objects are gone are removed. A row that is newer than everything in the list is in doubt: either another
//! process is ahead of this one, or the cluster was restored from a backup. It is left as it is, and named; when it is the
//! same in the next look, some seconds later, it is nobody who is ahead, and what the list says replaces it.

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

/// What is stored and is newer than the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Rows: of which table, of which object, and in which version.
    rows: HashSet<(&'static str, ObjectKey, i64)>,
    /// The last steps of objects, by uid.
    steps: HashSet<(String, i64)>,
}

impl Doubts {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.steps.is_empty()
    }

    /// Adds those of another kind.
    pub fn extend(&mut self, others: Self) {
        self.rows.extend(others.rows);
        self.steps.extend(others.steps);
    }
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
    /// How many rows are of a past that was undone: the next write of their objects replaces them.
    pub undone: usize,
    /// What is newer than the list.
    pub doubts: Doubts,
}

impl Writer {
    /// Compares the rows of a kind with all objects of it that there are, in these namespaces; empty: in all. Rows of other
    /// namespaces are somebody else's. `doubts` are those of the last look.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn compare(
        &mut self,
        kind: &'static str,
        namespaces: &[String],
        listed: &[Head],
        doubts: &Doubts,
    ) -> Result<Known, StoreError> {
        let look = Look {
            kind,
            namespaces,
            by_key: listed.iter().map(|head| (&head.key, head)).collect(),
            by_uid: listed.iter().map(|head| (head.uid.as_str(), head)).collect(),
            newest: listed.iter().map(|head| head.version).max().unwrap_or_default(),
            doubts,
        };
        self.transact(async |connection| {
            let mut known = Known::default();
            for table in [&WORKLOADS, &SERVERS] {
                look.compare_rows(connection, table, &mut known).await?;
            }
            look.compare_steps(connection, &mut known).await?;
            Ok(known)
        })
        .await
    }
}

/// A table with a row for each object.
struct Table {
    name: &'static str,
    heads: &'static str,
    undo: &'static str,
}

const WORKLOADS: Table = Table {
    name: "workloads",
    heads: "SELECT namespace, name, uid, resource_version FROM workloads WHERE kind = ",
    undo: "UPDATE workloads SET resource_version = 0 WHERE (kind, namespace, name) = ",
};
const SERVERS: Table = Table {
    name: "tool_servers",
    heads: "SELECT namespace, name, uid, resource_version FROM tool_servers WHERE kind = ",
    undo: "UPDATE tool_servers SET resource_version = 0 WHERE (kind, namespace, name) = ",
};

struct Look<'a> {
    kind: &'static str,
    namespaces: &'a [String],
    by_key: HashMap<&'a ObjectKey, &'a Head>,
    by_uid: HashMap<&'a str, &'a Head>,
    newest: i64,
    doubts: &'a Doubts,
}

impl Look<'_> {
    async fn compare_rows(
        &self,
        connection: &mut AnyConnection,
        table: &Table,
        known: &mut Known,
    ) -> Result<(), sqlx::Error> {
        let mut gone = Vec::new();
        for row in Sql::new(table.heads).value(self.kind).query(true).fetch_all(&mut *connection).await? {
            let (namespace, name) = (row.try_get("namespace")?, row.try_get("name")?);
            let key = ObjectKey { kind: self.kind, namespace, name };
            let (uid, version): (String, i64) = (row.try_get("uid")?, row.try_get("resource_version")?);
            let head = self.by_key.get(&key);
            let is_newer = version > head.map_or(self.newest, |head| head.version);
            let doubt = (table.name, key, version);
            let confirmed = self.doubts.rows.contains(&doubt);
            let (_, key, _) = &doubt;
            match head {
                None if !self.namespaces.is_empty() && !self.namespaces.contains(&key.namespace) => {}
                _ if is_newer && !confirmed => drop(known.doubts.rows.insert(doubt)),
                None => gone.push(Gone { key: key.clone(), uid }),
                // It stays readable; the next write of the object is newer than this.
                Some(_) if is_newer => {
                    let key = [self.kind.into(), (&key.namespace).into(), (&key.name).into()];
                    Sql::new(table.undo).rows([key]).query(true).execute(&mut *connection).await?;
                    known.undone += 1;
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

    /// Removes steps that a restored cluster no longer knows of: those after the last one of their object.
    async fn compare_steps(&self, connection: &mut AnyConnection, known: &mut Known) -> Result<(), sqlx::Error> {
        let last = Sql::new("SELECT uid, max(seq) AS last FROM transitions WHERE kind = ").value(self.kind);
        for row in last.text(" GROUP BY uid").query(true).fetch_all(&mut *connection).await? {
            let (uid, last): (String, i64) = (row.try_get("uid")?, row.try_get("last")?);
            let Some(head) = self.by_uid.get(uid.as_str()) else { continue };
            if last <= head.last_step {
                known.last_steps.insert(uid, last);
                continue;
            }
            let doubt = (uid, last);
            if self.doubts.steps.contains(&doubt) {
                let unknown = Sql::new("DELETE FROM transitions WHERE uid = ").value(&doubt.0);
                let unknown = unknown.text(" AND seq > ").value(head.last_step);
                unknown.query(true).execute(&mut *connection).await?;
            } else {
                known.doubts.steps.insert(doubt);
            }
        }
        Ok(())
    }
}
