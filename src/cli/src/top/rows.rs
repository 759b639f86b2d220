//! Rows of `recif top`.

use std::{cmp::Reverse, fmt::Write as _};

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::Value;

use crate::error::CliError;

/// Titles of the columns.
const TITLES: [&str; 8] = ["NAME", "CALLS", "FAILED", "INPUT", "CACHED", "OUTPUT", "COST", "P95"];
/// Blanks between two columns.
const GAP: usize = 3;

/// Order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TopSort {
    Cost,
    Tokens,
    Calls,
    P95,
}

/// Sums, in the order in which they are printed.
#[derive(Debug)]
pub(super) struct UsageTable {
    document: Value,
    items: Vec<SummedUsage>,
    truncated: bool,
}

/// Sum of one agent, flow, model, caller or namespace.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SummedUsage {
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    provider: Option<String>,
    name: String,
    calls: u64,
    failed: u64,
    input: u64,
    cache_read: u64,
    output: u64,
    estimated: u64,
    unpriced: u64,
    cost: Vec<SummedCost>,
    p95_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct SummedCost {
    currency: String,
    amount: String,
}

impl UsageTable {
    /// Reads the control plane's response and sorts its items.
    ///
    /// # Errors
    /// It is of another form.
    pub(super) fn read(mut document: Value, sort: TopSort) -> Result<Self, CliError> {
        let other = |_| {
            CliError::FailedAnswer("the control plane answers in another form: use a program of its version".into())
        };
        let truncated = document["truncated"].as_bool().unwrap_or_default();
        let found = document.get_mut("items").map(Value::take).unwrap_or_default();
        let found: Vec<Value> = serde_json::from_value(found).map_err(other)?;
        let mut items = Vec::with_capacity(found.len());
        for value in found {
            items.push((SummedUsage::deserialize(&value).map_err(other)?, value));
        }
        // Stable, so that those that are equal stay in the order of their tokens.
        items.sort_by_key(|(item, _)| Reverse(item.rank(sort)));
        let (items, sorted): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        document["items"] = sorted.into();
        Ok(Self { document, items, truncated })
    }

    /// Reports whether there are no sums.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the response, its items sorted.
    pub(super) fn document(&self) -> &Value {
        &self.document
    }

    /// Returns the columns.
    pub(super) fn text(&self) -> String {
        let rows: Vec<[String; 8]> = self.items.iter().map(SummedUsage::cells).collect();
        let mut widths = TITLES.map(str::len);
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in std::iter::once(TITLES.map(str::to_owned)).chain(rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                // Cannot fail: it writes to memory.
                let _ = write!(line, "{cell:<width$}", width = width + GAP);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Returns what the columns do not say.
    pub(super) fn notes(&self) -> Vec<String> {
        let unpriced = self.items.iter().fold(0, |sum: u64, item| sum.saturating_add(item.unpriced));
        let mut notes = Vec::new();
        if unpriced > 0 {
            notes.push(format!("{unpriced} tokens have no cost: set spec.price of their Models."));
        }
        if self.truncated {
            notes.push("There are more: name a namespace, or a shorter time.".to_owned());
        }
        notes
    }
}

impl SummedUsage {
    /// Returns the number by which it is sorted.
    fn rank(&self, sort: TopSort) -> u64 {
        match sort {
            TopSort::Tokens => self.input.saturating_add(self.output),
            TopSort::Calls => self.calls.saturating_add(self.failed),
            TopSort::P95 => self.p95_ms.unwrap_or_default(),
            TopSort::Cost => self.cost.iter().filter_map(|cost| billionths(&cost.amount)).fold(0, u64::saturating_add),
        }
    }

    fn cells(&self) -> [String; 8] {
        let Self { calls, failed, input, cache_read, output, .. } = self;
        let mark = if self.estimated > 0 { "~" } else { "" };
        let name = match (&self.namespace, &self.provider) {
            (Some(scope), _) | (None, Some(scope)) => format!("{scope}/{}", self.name),
            (None, None) if self.name.is_empty() => "(not signed in)".to_owned(),
            (None, None) => self.name.clone(),
        };
        let cost: Vec<_> =
            self.cost.iter().map(|cost| format!("{} {}", rounded(&cost.amount), cost.currency)).collect();
        let cost = if cost.is_empty() { "-".to_owned() } else { cost.join(", ") };
        let p95 = self.p95_ms.map_or_else(|| "-".to_owned(), duration);
        [
            name,
            calls.to_string(),
            failed.to_string(),
            format!("{mark}{input}"),
            cache_read.to_string(),
            format!("{mark}{output}"),
            cost,
            p95,
        ]
    }
}

/// Parses an amount with nine digits behind the point.
fn billionths(amount: &str) -> Option<u64> {
    let (whole, fraction) = amount.split_once('.')?;
    if fraction.len() != 9 {
        return None;
    }
    format!("{whole}{fraction}").parse().ok()
}

/// Rounds an amount to four digits behind the point.
fn rounded(amount: &str) -> String {
    match billionths(amount) {
        Some(1..50_000) => "<0.0001".to_owned(),
        Some(cost) => {
            let cost = cost.saturating_add(50_000) / 100_000;
            format!("{}.{:04}", cost / 10_000, cost % 10_000)
        }
        None => amount.to_owned(),
    }
}

fn duration(millis: u64) -> String {
    if millis < 1000 { format!("{millis}ms") } else { format!("{}.{}s", millis / 1000, millis % 1000 / 100) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(name: &str, tokens: u64, calls: u64, cost: &str, p95: u64) -> Value {
        let cost = if cost.is_empty() { json!([]) } else { json!([{ "currency": "USD", "amount": cost }]) };
        json!({
            "provider": "openai", "name": name, "calls": calls, "failed": 1, "input": tokens, "cacheRead": 5, "cacheWrite": 0,
            "output": 7, "reasoning": 0, "estimated": 0, "unpriced": 0, "cost": cost, "p95Ms": p95,
        })
    }

    fn table(sort: TopSort) -> UsageTable {
        let mut unpriced = item("c", 10, 9, "", 64);
        (unpriced["unpriced"], unpriced["estimated"]) = (json!(17), json!(3));
        let items = [item("a", 3000, 1, "1.250049999", 2048), item("b", 200, 2, "12.000000000", 16_384), unpriced];
        UsageTable::read(json!({ "items": items, "truncated": true }), sort).unwrap()
    }

    #[test]
    fn the_columns_say_what_models_used_and_the_notes_what_has_no_price() {
        let table = table(TopSort::Tokens);
        let expected = "\
NAME       CALLS   FAILED   INPUT   CACHED   OUTPUT   COST          P95
openai/a   1       1        3000    5        7        1.2500 USD    2.0s
openai/b   2       1        200     5        7        12.0000 USD   16.3s
openai/c   9       1        ~10     5        ~7       -             64ms
";
        assert_eq!(table.text(), expected);
        let notes = table.notes();
        assert!(notes[0].starts_with("17 tokens have no cost") && notes[1].starts_with("There are more"), "{notes:?}");
    }

    #[test]
    fn rows_and_document_have_the_same_order() {
        for (sort, order) in
            [(TopSort::Tokens, "abc"), (TopSort::Calls, "cba"), (TopSort::Cost, "bac"), (TopSort::P95, "bac")]
        {
            let table = table(sort);
            let names: String = table.items.iter().map(|item| item.name.as_str()).collect();
            let items = table.document()["items"].as_array().unwrap();
            let sorted: String = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
            assert_eq!((names.as_str(), sorted.as_str()), (order, order), "{sort:?}");
        }
    }

    #[test]
    fn small_amounts_are_not_nothing() {
        for (amount, shown) in [
            ("0.000000000", "0.0000"),
            ("0.000000001", "<0.0001"),
            ("0.000050000", "0.0001"),
            ("3.141592653", "3.1416"),
            ("odd", "odd"),
        ] {
            assert_eq!(rounded(amount), shown);
        }
    }

    #[test]
    fn a_response_of_another_form_is_told() {
        for document in [json!({}), json!({ "items": [{ "name": "a" }] }), json!([])] {
            assert!(UsageTable::read(document, TopSort::Calls).unwrap_err().to_string().contains("another form"));
        }
    }
}
