//! Usage of models: cells of a [grow-only counter](crds::usage), their sums, and what becomes of old ones.

use std::iter;

use crds::usage::{LATENCY_BUCKETS, UsageKey, UsageTotals};
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

/// Cell of a workload's Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The workload.
    pub workload: ObjectKey,
    /// The process that counts the cell.
    pub instance: String,
    /// The cell.
    pub key: UsageKey,
    /// Its totals.
    pub totals: UsageTotals,
    /// Its cost in 10⁻⁹ of a currency, and the currency; `None`: the model has no price.
    pub cost: Option<(u64, String)>,
}

/// Grouping of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageGroup {
    /// By Agent.
    Agents,
    /// By Flow and FlowSet.
    Flows,
    /// By provider and model.
    Models,
    /// By caller.
    Callers,
    /// By namespace.
    Namespaces,
}

/// Length of the intervals that are summed apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageStep {
    /// The whole time.
    Whole,
    /// Hours.
    Hour,
    /// Days, UTC.
    Day,
}

/// Question for sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery<'a> {
    /// Grouping.
    pub group: UsageGroup,
    /// First hour, and the first one that does not count any more.
    pub hours: (i64, i64),
    /// Intervals.
    pub step: UsageStep,
    /// Namespaces; empty: all.
    pub namespaces: &'a [String],
    /// Workloads that the caller may see.
    pub visible: &'a HistoryScope,
    /// Limit of the sums.
    pub limit: usize,
}

/// Sum over the cells of one group, interval and currency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSum {
    /// First hour of the interval; 0: the whole time.
    pub hour: i64,
    /// Namespace of a workload, or provider of a model; else empty.
    pub scope: String,
    /// Name.
    pub name: String,
    /// Currency; empty: the model had no price.
    pub currency: String,
    /// Totals.
    pub totals: UsageTotals,
    /// Cost in 10⁻⁹ of the currency.
    pub cost: u64,
}

const INSERT: &str = "INSERT INTO usage \
    (hour, kind, namespace, name, caller, provider, model, purpose, instance, currency, \
    calls, failed, input, cache_read, cache_write, output, reasoning, estimated, cost, ms_0, ms_1, \
    ms_2, ms_3, ms_4, ms_5, ms_6, ms_7, ms_8, ms_9, ms_10, ms_11, ms_12, ms_13, ms_14, ms_15) VALUES ";
/// The version with more requests is the newer one, because the numbers of a cell only grow.
const UPSERT: &str = " ON CONFLICT (hour, kind, namespace, name, caller, provider, model, purpose, instance) DO UPDATE SET \
    currency = excluded.currency, calls = excluded.calls, failed = excluded.failed, \
    input = excluded.input, cache_read = excluded.cache_read, cache_write = excluded.cache_write, \
    output = excluded.output, reasoning = excluded.reasoning, estimated = excluded.estimated, \
    cost = excluded.cost, ms_0 = excluded.ms_0, ms_1 = excluded.ms_1, ms_2 = excluded.ms_2, \
    ms_3 = excluded.ms_3, ms_4 = excluded.ms_4, ms_5 = excluded.ms_5, ms_6 = excluded.ms_6, \
    ms_7 = excluded.ms_7, ms_8 = excluded.ms_8, ms_9 = excluded.ms_9, ms_10 = excluded.ms_10, \
    ms_11 = excluded.ms_11, ms_12 = excluded.ms_12, ms_13 = excluded.ms_13, ms_14 = excluded.ms_14, \
    ms_15 = excluded.ms_15 \
    WHERE excluded.calls + excluded.failed > usage.calls + usage.failed";
/// A cost is summed in two parts and stops at 9·10⁹ of a currency: SQLite fails for a sum beyond 64 bits, and the numbers of one
/// workload must not keep the sums of all others from being read.
const SUMS: &str = "currency, \
    CAST(sum(calls) AS BIGINT) AS calls, CAST(sum(failed) AS BIGINT) AS failed, \
    CAST(sum(input) AS BIGINT) AS input, CAST(sum(cache_read) AS BIGINT) AS cache_read, \
    CAST(sum(cache_write) AS BIGINT) AS cache_write, CAST(sum(output) AS BIGINT) AS output, \
    CAST(sum(reasoning) AS BIGINT) AS reasoning, CAST(sum(estimated) AS BIGINT) AS estimated, \
    CAST((CASE WHEN sum(cost / 1000000000) > 9000000000 THEN 9000000000 ELSE sum(cost / 1000000000) END) \
    * 1000000000 + sum(cost % 1000000000) AS BIGINT) AS cost, CAST(sum(ms_0) AS BIGINT) AS ms_0, \
    CAST(sum(ms_1) AS BIGINT) AS ms_1, CAST(sum(ms_2) AS BIGINT) AS ms_2, \
    CAST(sum(ms_3) AS BIGINT) AS ms_3, CAST(sum(ms_4) AS BIGINT) AS ms_4, \
    CAST(sum(ms_5) AS BIGINT) AS ms_5, CAST(sum(ms_6) AS BIGINT) AS ms_6, \
    CAST(sum(ms_7) AS BIGINT) AS ms_7, CAST(sum(ms_8) AS BIGINT) AS ms_8, \
    CAST(sum(ms_9) AS BIGINT) AS ms_9, CAST(sum(ms_10) AS BIGINT) AS ms_10, \
    CAST(sum(ms_11) AS BIGINT) AS ms_11, CAST(sum(ms_12) AS BIGINT) AS ms_12, \
    CAST(sum(ms_13) AS BIGINT) AS ms_13, CAST(sum(ms_14) AS BIGINT) AS ms_14, \
    CAST(sum(ms_15) AS BIGINT) AS ms_15 \
    FROM usage WHERE hour >= ";
/// Cells of several processes become one, for each currency. Its instance is none of a process.
const FOLD: &str = "INSERT INTO usage \
    (hour, kind, namespace, name, caller, provider, model, purpose, instance, currency, \
    calls, failed, input, cache_read, cache_write, output, reasoning, estimated, cost, ms_0, ms_1, \
    ms_2, ms_3, ms_4, ms_5, ms_6, ms_7, ms_8, ms_9, ms_10, ms_11, ms_12, ms_13, ms_14, ms_15) \
    SELECT hour, kind, namespace, name, caller, provider, model, purpose, 'folded ' || currency, currency, \
    CAST(sum(calls) AS BIGINT) AS calls, CAST(sum(failed) AS BIGINT) AS failed, \
    CAST(sum(input) AS BIGINT) AS input, CAST(sum(cache_read) AS BIGINT) AS cache_read, \
    CAST(sum(cache_write) AS BIGINT) AS cache_write, CAST(sum(output) AS BIGINT) AS output, \
    CAST(sum(reasoning) AS BIGINT) AS reasoning, CAST(sum(estimated) AS BIGINT) AS estimated, \
    CAST((CASE WHEN sum(cost / 1000000000) > 9000000000 THEN 9000000000 ELSE sum(cost / 1000000000) END) \
    * 1000000000 + sum(cost % 1000000000) AS BIGINT) AS cost, CAST(sum(ms_0) AS BIGINT) AS ms_0, \
    CAST(sum(ms_1) AS BIGINT) AS ms_1, CAST(sum(ms_2) AS BIGINT) AS ms_2, \
    CAST(sum(ms_3) AS BIGINT) AS ms_3, CAST(sum(ms_4) AS BIGINT) AS ms_4, \
    CAST(sum(ms_5) AS BIGINT) AS ms_5, CAST(sum(ms_6) AS BIGINT) AS ms_6, \
    CAST(sum(ms_7) AS BIGINT) AS ms_7, CAST(sum(ms_8) AS BIGINT) AS ms_8, \
    CAST(sum(ms_9) AS BIGINT) AS ms_9, CAST(sum(ms_10) AS BIGINT) AS ms_10, \
    CAST(sum(ms_11) AS BIGINT) AS ms_11, CAST(sum(ms_12) AS BIGINT) AS ms_12, \
    CAST(sum(ms_13) AS BIGINT) AS ms_13, CAST(sum(ms_14) AS BIGINT) AS ms_14, \
    CAST(sum(ms_15) AS BIGINT) AS ms_15 \
    FROM usage WHERE instance NOT LIKE 'folded %' AND hour >= ";
const FOLD_GROUPS: &str = " GROUP BY hour, kind, namespace, name, caller, provider, model, purpose, currency";

impl UsageGroup {
    /// Returns the columns of scope and name.
    fn columns(self) -> &'static str {
        match self {
            Self::Agents | Self::Flows => "namespace AS scope, name AS name, ",
            Self::Models => "provider AS scope, model AS name, ",
            Self::Callers => "CAST('' AS TEXT) AS scope, caller AS name, ",
            Self::Namespaces => "CAST('' AS TEXT) AS scope, namespace AS name, ",
        }
    }

    /// Returns the condition on the kind.
    fn kinds(self) -> &'static str {
        match self {
            Self::Agents => " AND kind = 'Agent'",
            Self::Flows => " AND kind IN ('Flow', 'FlowSet')",
            Self::Models | Self::Callers | Self::Namespaces => "",
        }
    }
}

impl UsageStep {
    fn column(self) -> &'static str {
        match self {
            Self::Whole => "SELECT CAST(0 AS BIGINT) AS at, ",
            Self::Hour => "SELECT hour AS at, ",
            Self::Day => "SELECT hour - hour % 24 AS at, ",
        }
    }
}

impl Writer {
    /// Writes cells, all or none. A version that is not newer than the stored one changes nothing.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn write_usage(&mut self, rows: &[UsageRow]) -> Result<(), StoreError> {
        let mut rows: Vec<&UsageRow> = rows.iter().collect();
        // In the same order in every process, so that two of them do not wait for each other.
        rows.sort_by(|one, other| {
            (&one.key, &one.workload, &one.instance).cmp(&(&other.key, &other.workload, &other.instance))
        });
        self.transact(async |connection| {
            for some in rows.chunks(ROWS_PER_STATEMENT) {
                write_rows(connection, some).await?;
            }
            Ok(())
        })
        .await
    }

    /// Makes one row of those of several processes, for cells of these hours: the first one, and the first one that stays as it is.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn fold_usage(&mut self, (from, before): (i64, i64)) -> Result<(), StoreError> {
        let bounded = |sql: Sql| sql.value(from).text(" AND hour < ").value(before);
        let fold = bounded(Sql::new(FOLD)).text(FOLD_GROUPS);
        let remove = bounded(Sql::new("DELETE FROM usage WHERE instance NOT LIKE 'folded %' AND hour >= "));
        self.transact(async |connection| {
            fold.query(true).execute(&mut *connection).await?;
            remove.query(true).execute(&mut *connection).await
        })
        .await
        .map(drop)
    }

    /// Deletes the cells before this hour.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn delete_usage_before(&mut self, hour: i64) -> Result<(), StoreError> {
        let old = Sql::new("DELETE FROM usage WHERE hour < ").value(hour);
        self.transact(async |connection| old.query(true).execute(&mut *connection).await).await.map(drop)
    }
}

impl Store {
    /// Returns sums, those of the most tokens first.
    ///
    /// # Errors
    /// The database is away or refuses.
    pub async fn usage(&self, query: &UsageQuery<'_>) -> Result<Vec<UsageSum>, StoreError> {
        let UsageQuery { group, hours: (from, until), step, namespaces, visible, limit } = query;
        let mut sql = Sql::new(step.column()).text(group.columns()).text(SUMS).value(*from);
        sql = sql.text(" AND hour < ").value(*until).text(group.kinds());
        if !namespaces.is_empty() {
            sql = sql.text(" AND namespace IN ").list(namespaces.iter().map(Value::from));
        }
        match visible {
            HistoryScope::All => {}
            HistoryScope::Only(pairs) if pairs.is_empty() => return Ok(Vec::new()),
            HistoryScope::Only(pairs) => {
                let pairs = pairs.iter().map(|(kind, namespace)| [kind.into(), namespace.into()]);
                sql = sql.text(" AND (kind, namespace) IN (VALUES ").rows(pairs).text(")");
            }
        }
        let sql = sql.text(" GROUP BY 1, 2, 3, 4 ORDER BY sum(input) + sum(output) DESC, 1, 2, 3, 4 LIMIT ");
        let rows = self.rows(sql.value(i64::try_from(*limit).unwrap_or(i64::MAX))).await?;
        rows.iter().map(read).collect::<Result<_, sqlx::Error>>().map_err(StoreError::from)
    }
}

async fn write_rows(connection: &mut AnyConnection, rows: &[&UsageRow]) -> Result<(), sqlx::Error> {
    let mut insert = Sql::new(INSERT);
    for (at, UsageRow { workload, instance, key, totals, cost }) in rows.iter().enumerate() {
        let UsageKey { hour, caller, provider, model, purpose } = key;
        let (cost, currency) = cost.as_ref().map_or((0, ""), |(cost, currency)| (*cost, currency.as_str()));
        let ObjectKey { kind, namespace, name } = workload;
        let texts: [&str; 9] = [kind, namespace, name, caller, provider, model, purpose.as_str(), instance, currency];
        let values = iter::once(Value::Number(*hour)).chain(texts.map(Value::Text));
        let numbers = numbers(totals).into_iter().chain([cost]).chain(totals.latency);
        let values = values.chain(numbers.map(|number| Value::Number(i64::try_from(number).unwrap_or(i64::MAX))));
        insert = insert.text(if at == 0 { "" } else { ", " }).list(values);
    }
    insert.text(UPSERT).query(rows.len() == 1).execute(connection).await.map(drop)
}

/// Returns the numbers in the order of the columns.
fn numbers(totals: &UsageTotals) -> [u64; 8] {
    let UsageTotals { calls, failed, input, cache_read, cache_write, output, reasoning, estimated, latency: _ } =
        *totals;
    [calls, failed, input, cache_read, cache_write, output, reasoning, estimated]
}

fn read(row: &AnyRow) -> Result<UsageSum, sqlx::Error> {
    let number = |column: &str| row.try_get::<i64, _>(column).map(|number| u64::try_from(number).unwrap_or_default());
    let mut latency = [0; LATENCY_BUCKETS];
    for (bucket, count) in latency.iter_mut().enumerate() {
        *count = number(&format!("ms_{bucket}"))?;
    }
    let totals = UsageTotals {
        calls: number("calls")?,
        failed: number("failed")?,
        input: number("input")?,
        cache_read: number("cache_read")?,
        cache_write: number("cache_write")?,
        output: number("output")?,
        reasoning: number("reasoning")?,
        estimated: number("estimated")?,
        latency,
    };
    Ok(UsageSum {
        hour: row.try_get("at")?,
        scope: row.try_get("scope")?,
        name: row.try_get("name")?,
        currency: row.try_get("currency")?,
        totals,
        cost: number("cost")?,
    })
}
