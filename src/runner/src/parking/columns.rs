//! Columns of the table of parked turns, as values.

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqlx::{Row, postgres::PgRow};

use super::turn::ParkedTurn;
use crate::{models::ToolCall, tools::Decider};

/// Call for an approver. Versions that know no approver cannot read it, so that they show and decide none of these.
#[derive(Serialize, Deserialize)]
struct ApproverCall<C> {
    approver: C,
}

/// Begin of the column `calls` where an approver decides.
const FOR_APPROVER: &str = r#"[{"approver":"#;

/// Returns the column `calls` of a turn.
pub(super) fn calls_column(turn: &ParkedTurn) -> Result<String, sqlx::Error> {
    match turn.by {
        Decider::Caller => json(&turn.calls),
        Decider::Approver => {
            json(&turn.calls.iter().map(|approver| ApproverCall { approver }).collect::<Vec<ApproverCall<&ToolCall>>>())
        }
    }
}

/// Parses the column `calls`: who decides, and the calls. `None` for one that another version of this runtime wrote and cannot be read.
pub(super) fn read_calls(row: &PgRow) -> Result<Option<(Decider, Vec<ToolCall>)>, sqlx::Error> {
    if row.try_get::<&str, _>("calls")?.starts_with(FOR_APPROVER) {
        let found: Option<Vec<ApproverCall<ToolCall>>> = read_json(row, "calls")?;
        let calls = |found: Vec<ApproverCall<ToolCall>>| found.into_iter().map(|call| call.approver).collect();
        return Ok(found.map(|found| (Decider::Approver, calls(found))));
    }
    Ok(read_json(row, "calls")?.map(|calls| (Decider::Caller, calls)))
}

/// Parses the JSON in a column; `None` without a text, and for one that another version of this runtime wrote and cannot be read.
pub(super) fn read_json<T: DeserializeOwned>(row: &PgRow, column: &str) -> Result<Option<T>, sqlx::Error> {
    let Some(text) = row.try_get::<Option<&str>, _>(column)? else { return Ok(None) };
    let read = serde_json::from_str(text);
    if read.is_err() {
        // The text of the error may quote the turn, so it is not logged.
        tracing::warn!(column, "a parked turn that another version of this runtime wrote cannot be read");
    }
    Ok(read.ok())
}

/// Returns a value as the text of a column.
pub(super) fn json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// Returns the seconds for which the calls of a turn wait.
pub(super) fn seconds(turn: &ParkedTurn) -> f64 {
    std::time::Duration::from_secs(turn.patience).as_secs_f64()
}

/// Returns the time of a column with microseconds since 1970.
pub(super) fn time(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(microseconds).unwrap_or_default()
}
