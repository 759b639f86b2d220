//! Spans of traces, the runs that they make up, and what becomes of old ones.

use sqlx::{AnyConnection, Row as _, any::AnyRow};

use super::{
    database::{Store, Writer},
    error::StoreError,
    record::ObjectKey,
    sql::{Sql, Value},
    transitions::HistoryScope,
};

/// Rows of one statement, well below SQLite's limit of 32 766 parameters.
const ROWS_PER_STATEMENT: usize = 200;
/// Old spans that one transaction deletes.
const SPANS_PER_DELETE: i64 = 1_000;
/// Bytes of a row besides its document: ids, names, times, and their places in the indexes.
const BYTES_PER_ROW: usize = 400;

/// Span of a workload, or about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanRow {
    /// Id of the trace, as 32 hexadecimal digits.
    pub trace: String,
    /// Id of the span, as 16 hexadecimal digits.
    pub span: String,
    /// The workload that it comes from.
    pub workload: ObjectKey,
    /// Conversation that it belongs to; empty: none is named.
    pub conversation: String,
    /// Start, in nanoseconds since 1970.
    pub started: i64,
    /// End, in nanoseconds since 1970.
    pub ended: i64,
    /// Set if the operation failed.
    pub has_failed: bool,
    /// Time at which it came, in milliseconds since 1970.
    pub received: i64,
    /// Set for a span of gateway or operator. It replaces one of a workload with its ids, which workloads know before it comes.
    pub is_of_platform: bool,
    /// Everything else, as JSON.
    pub document: String,
}

impl SpanRow {
    /// Returns the approximate number of bytes that it takes in the database.
    pub fn size(&self) -> usize {
        self.document.len() + BYTES_PER_ROW
    }
}

/// Span as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSpan {
    /// Id of the span.
    pub span: String,
    /// Kind of the workload that it comes from.
    pub kind: String,
    /// Namespace of that workload.
    pub namespace: String,
    /// Name of that workload.
    pub name: String,
    /// Start, in nanoseconds since 1970.
    pub started: i64,
    /// End, in nanoseconds since 1970.
    pub ended: i64,
    /// Everything else, as JSON.
    pub document: String,
}

/// Question for runs.
#[derive(Debug, Clone, Copy)]
pub struct RunQuery<'a> {
    /// Kind of a workload that took part.
    pub kind: Option<&'a str>,
    /// Its namespace.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: Option<&'a str>,
    /// Conversation that a span names.
    pub conversation: Option<&'a str>,
    /// Workloads whose spans count.
    pub visible: &'a HistoryScope,
    /// Limit of the runs.
    pub limit: usize,
}

/// Run: the spans of one trace, summed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSum {
    /// Id of the trace.
    pub trace: String,
    /// Start of the first span, in nanoseconds since 1970.
    pub started: i64,
    /// End of the last span, in nanoseconds since 1970.
    pub ended: i64,
    /// Number of spans.
    pub spans: u64,
    /// Number of those that failed.
    pub failed: u64,
}

const INSERT: &str = "INSERT INTO spans (trace, span, kind, namespace, name, conversation, started, ended, failed, \
                      received, bytes, document) VALUES ";
/// Clause that keeps a span that is stored already, so that no sender replaces those of others.
const KEEP_FIRST: &str = " ON CONFLICT (trace, span) DO NOTHING";
/// Clause that replaces a span that is stored already: those of the platform have ids that no other span has unless it was forged.
const REPLACE: &str = " ON CONFLICT (trace, span) DO UPDATE SET kind = excluded.kind, namespace = excluded.namespace, \
                       name = excluded.name, conversation = excluded.conversation, started = excluded.started, \
                       ended = excluded.ended, failed = excluded.failed, received = excluded.received, \
                       bytes = excluded.bytes, document = excluded.document";
const SPANS: &str = "SELECT span, kind, namespace, name, started, ended, document FROM spans WHERE trace = ";
const RUNS: &str = "SELECT trace, CAST(min(started) AS BIGINT) AS started, CAST(max(ended) AS BIGINT) AS ended, \
                    CAST(count(*) AS BIGINT) AS spans, CAST(sum(failed) AS BIGINT) AS failed FROM spans WHERE ";
const BYTES: &str = "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes FROM spans";
const DELETE: &str = "DELETE FROM spans WHERE (trace, span) IN (SELECT trace, span FROM spans ";

impl Writer {
    /// Writes spans, all or none. One that is stored already stays as it is, unless the new one is of the platform.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn write_spans(&mut self, rows: &[SpanRow]) -> Result<(), StoreError> {
        let mut rows: Vec<&SpanRow> = rows.iter().collect();
        // In the same order in every process, so that two of them do not wait for each other.
        rows.sort_by(|one, other| (&one.trace, &one.span).cmp(&(&other.trace, &other.span)));
        // A statement can replace a row only once.
        rows.dedup_by(|other, one| (&other.trace, &other.span) == (&one.trace, &one.span));
        let alike = rows.chunk_by(|one, other| one.is_of_platform == other.is_of_platform);
        let statements: Vec<&[&SpanRow]> = alike.flat_map(|some| some.chunks(ROWS_PER_STATEMENT)).collect();
        self.transact(async |connection| {
            for some in &statements {
                insert(connection, some).await?;
            }
            Ok(())
        })
        .await
    }

    /// Returns the approximate number of bytes that all spans take.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn span_bytes(&mut self) -> Result<u64, StoreError> {
        let query = Sql::new(BYTES);
        let row = self.transact(async |connection| query.query(true).fetch_one(connection).await).await?;
        Ok(u64::try_from(row.try_get::<i64, _>("bytes")?).unwrap_or_default())
    }

    /// Deletes a batch of the spans that came before this time, in milliseconds since 1970, and reports whether there may be more.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn delete_spans_before(&mut self, received: i64) -> Result<bool, StoreError> {
        let old = Sql::new(DELETE).text("WHERE received < ").value(received);
        let deleted = self.delete_spans(old.text(" LIMIT ").value(SPANS_PER_DELETE).text(")")).await?;
        Ok(deleted >= SPANS_PER_DELETE.unsigned_abs())
    }

    /// Deletes as many of the spans that came first, and returns how many there were.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn delete_oldest_spans(&mut self, count: usize) -> Result<u64, StoreError> {
        let first = Sql::new(DELETE).text("ORDER BY received, trace, span LIMIT ");
        self.delete_spans(first.value(bounded(count)).text(")")).await
    }

    async fn delete_spans(&mut self, delete: Sql) -> Result<u64, StoreError> {
        let deleted = self.transact(async |connection| delete.query(true).execute(connection).await).await?;
        Ok(deleted.rows_affected())
    }
}

impl Store {
    /// Returns the spans of a trace, at most `limit`, the earliest first.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn spans(&self, trace: &str, limit: usize) -> Result<Vec<StoredSpan>, StoreError> {
        let query = Sql::new(SPANS).value(trace).text(" ORDER BY started, span LIMIT ").value(bounded(limit));
        let rows = self.rows(query).await?;
        rows.iter().map(read_span).collect::<Result<_, sqlx::Error>>().map_err(StoreError::from)
    }

    /// Returns runs, the newest first.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn runs(&self, query: &RunQuery<'_>) -> Result<Vec<RunSum>, StoreError> {
        let RunQuery { kind, namespace, name, conversation, visible, limit } = *query;
        if matches!(visible, HistoryScope::Only(pairs) if pairs.is_empty()) {
            return Ok(Vec::new());
        }
        let sql = only_visible(Sql::new(RUNS), visible).text(" AND trace IN (SELECT trace FROM spans WHERE ");
        let mut sql = only_visible(sql, visible);
        let filters = [
            (" AND kind = ", kind),
            (" AND namespace = ", namespace),
            (" AND name = ", name),
            (" AND conversation = ", conversation),
        ];
        for (column, wanted) in filters {
            if let Some(wanted) = wanted {
                sql = sql.text(column).value(wanted);
            }
        }
        let sql = sql.text(") GROUP BY trace ORDER BY 2 DESC, 1 LIMIT ").value(bounded(limit));
        let rows = self.rows(sql).await?;
        rows.iter().map(read_run).collect::<Result<_, sqlx::Error>>().map_err(StoreError::from)
    }
}

/// Appends the condition that a span is of a visible workload.
fn only_visible(sql: Sql, visible: &HistoryScope) -> Sql {
    match visible {
        HistoryScope::All => sql.text("1 = 1"),
        HistoryScope::Only(pairs) => {
            let pairs = pairs.iter().map(|(kind, namespace)| [kind.into(), namespace.into()]);
            sql.text("(kind, namespace) IN (VALUES ").rows(pairs).text(")")
        }
    }
}

fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Inserts rows that are all of the platform, or none of them.
async fn insert(connection: &mut AnyConnection, rows: &[&SpanRow]) -> Result<(), sqlx::Error> {
    let values = rows.iter().map(|row| {
        let SpanRow { trace, span, workload, conversation, started, ended, has_failed, received, document, .. } = row;
        let ObjectKey { kind, namespace, name } = workload;
        let bytes = bounded(row.size());
        [
            trace.into(),
            span.into(),
            (*kind).into(),
            namespace.into(),
            name.into(),
            conversation.into(),
            (*started).into(),
            (*ended).into(),
            Value::Number((*has_failed).into()),
            (*received).into(),
            bytes.into(),
            document.into(),
        ]
    });
    let conflict = if rows.first().is_some_and(|row| row.is_of_platform) { REPLACE } else { KEEP_FIRST };
    Sql::new(INSERT).rows(values).text(conflict).query(rows.len() == 1).execute(connection).await.map(drop)
}

fn read_span(row: &AnyRow) -> Result<StoredSpan, sqlx::Error> {
    Ok(StoredSpan {
        span: row.try_get("span")?,
        kind: row.try_get("kind")?,
        namespace: row.try_get("namespace")?,
        name: row.try_get("name")?,
        started: row.try_get("started")?,
        ended: row.try_get("ended")?,
        document: row.try_get("document")?,
    })
}

fn read_run(row: &AnyRow) -> Result<RunSum, sqlx::Error> {
    let count = |column: &str| row.try_get::<i64, _>(column).map(|count| u64::try_from(count).unwrap_or_default());
    Ok(RunSum {
        trace: row.try_get("trace")?,
        started: row.try_get("started")?,
        ended: row.try_get("ended")?,
        spans: count("spans")?,
        failed: count("failed")?,
    })
}
