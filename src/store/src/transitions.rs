//! Queries of the history.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use sqlx::{Row as _, any::AnyRow};

use super::{
    database::Store,
    error::StoreError,
    record::{TransitionRow, timestamp_text},
    sql::Sql,
};

/// Step of an object, which may be deleted by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectTransition {
    /// The object's kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The step.
    pub step: TransitionRow,
}

/// Objects whose steps a caller may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryScope {
    /// All.
    All,
    /// Those of these kinds and namespaces.
    Only(Vec<(String, String)>),
}

/// Place in the fleet's history, behind this step, for [keyset pagination](https://use-the-index-luke.com/no-offset).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    at: Timestamp,
    uid: String,
    seq: i64,
}

/// Page of steps, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionPage {
    /// The steps.
    pub items: Vec<ObjectTransition>,
    /// Start of the next page; `None`: there are no older steps.
    pub next: Option<Cursor>,
}

const COLUMNS: &str = "SELECT kind, namespace, name, uid, seq, at, \"from\", \"to\", action, reason, took_ms, trace_id \
                       FROM transitions WHERE ";

impl Store {
    /// Returns the newest steps of all objects, or the newest before a place; at most `limit`.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn latest(
        &self,
        visible: &HistoryScope,
        before: Option<&Cursor>,
        limit: usize,
    ) -> Result<TransitionPage, StoreError> {
        let mut query = match visible {
            HistoryScope::All => Sql::new(COLUMNS).text("1 = 1"),
            HistoryScope::Only(pairs) if pairs.is_empty() => {
                return Ok(TransitionPage { items: Vec::new(), next: None });
            }
            HistoryScope::Only(pairs) => {
                let pairs = pairs.iter().map(|(kind, namespace)| [kind.into(), namespace.into()]);
                Sql::new(COLUMNS).text("(kind, namespace) IN (VALUES ").rows(pairs).text(")")
            }
        };
        if let Some(Cursor { at, uid, seq }) = before {
            query =
                query.text(" AND (at, uid, seq) < ").rows([[(&timestamp_text(*at)).into(), uid.into(), (*seq).into()]]);
        }
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let query = query.text(" ORDER BY at DESC, uid DESC, seq DESC LIMIT ").value(most);
        let mut items = read(&self.rows(query).await?)?;
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| Cursor {
            at: last.step.at,
            uid: last.uid.clone(),
            seq: last.step.seq,
        });
        Ok(TransitionPage { items, next })
    }

    /// Returns the steps of the object with this uid after the step `after` (0: all), oldest first; at most `limit`, the
    /// newest.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn steps(&self, uid: &str, after: i64, limit: usize) -> Result<Vec<ObjectTransition>, StoreError> {
        let query = Sql::new(COLUMNS).text("uid = ").value(uid).text(" AND seq > ").value(after);
        let query = query.text(" ORDER BY seq DESC LIMIT ").value(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut steps = read(&self.rows(query).await?)?;
        steps.reverse();
        Ok(steps)
    }

    /// Returns the newest steps of the objects that had this name, including deleted ones, oldest first; at most `limit`.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn history(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        limit: usize,
    ) -> Result<Vec<ObjectTransition>, StoreError> {
        let query = Sql::new(COLUMNS).text("(kind, namespace, name) = ");
        let query = query.rows([[kind.into(), namespace.into(), name.into()]]);
        let query = query.text(" ORDER BY at DESC, uid DESC, seq DESC LIMIT ");
        let query = query.value(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut steps = read(&self.rows(query).await?)?;
        steps.reverse();
        Ok(steps)
    }
}

fn read(rows: &[AnyRow]) -> Result<Vec<ObjectTransition>, StoreError> {
    let read = |row: &AnyRow| {
        let step = TransitionRow {
            seq: row.try_get("seq")?,
            at: row
                .try_get::<String, _>("at")?
                .parse()
                .map_err(|error: jiff::Error| sqlx::Error::Decode(error.into()))?,
            from: row.try_get("from")?,
            to: row.try_get("to")?,
            action: row.try_get("action")?,
            reason: row.try_get("reason")?,
            took_ms: row.try_get("took_ms")?,
            trace_id: row.try_get("trace_id")?,
        };
        let (kind, namespace, name) = (row.try_get("kind")?, row.try_get("namespace")?, row.try_get("name")?);
        Ok(ObjectTransition { kind, namespace, name, uid: row.try_get("uid")?, step })
    };
    rows.iter().map(read).collect::<Result<_, sqlx::Error>>().map_err(StoreError::from)
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", timestamp_text(self.at), self.uid, self.seq)
    }
}

impl FromStr for Cursor {
    type Err = ();

    /// Parses the output of [`Cursor`]'s `Display`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, rest) = text.split_once('_').ok_or(())?;
        let (uid, seq) = rest.rsplit_once('_').ok_or(())?;
        Ok(Self { at: at.parse().map_err(|_| ())?, uid: uid.to_owned(), seq: seq.parse().map_err(|_| ())? })
    }
}
