//! Formats a table of the API server as text.

use std::fmt::Write as _;

use crds::{ApiKind, GROUP, agent_model};
use serde_json::Value;

use crate::cluster::{ObjectTable, TableColumn, TableRow};

/// Spaces between two columns.
const COLUMN_GAP: usize = 3;

/// Layout of the columns. Later pages keep the widths of the first one, and widen a column where needed.
///
/// Invariant: `titles` and `widths` have the same length.
#[derive(Debug, Default)]
pub(super) struct Columns {
    wide: bool,
    namespaces: bool,
    kind: &'static str,
    /// Indexes and contents of the cells that are shown.
    shown: Vec<(usize, Cell)>,
    titles: Vec<String>,
    widths: Vec<usize>,
    titled: bool,
}

/// Content of a cell, as far as it matters for the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Name,
    /// Model of an agent, which the API server does not show before the status holds it.
    Model,
    Other,
}

impl Columns {
    /// Returns an empty layout. `wide` shows all columns; `namespaces` adds a column with the namespace of each row.
    pub(super) fn new(wide: bool, namespaces: bool) -> Self {
        Self { wide, namespaces, ..Self::default() }
    }

    /// Takes over the columns of a table, unless it continues the kind before. Returns whether a new table begins.
    pub(super) fn begin(&mut self, kind: &'static str, table: &ObjectTable) -> bool {
        if self.kind == kind || table.column_definitions.is_empty() {
            return false;
        }
        self.kind = kind;
        let columns = table.column_definitions.iter().enumerate();
        let shown: Vec<(usize, &TableColumn)> =
            columns.filter(|(_, column)| self.wide || column.priority == 0).collect();
        let holds = |column: &TableColumn| match column.name.as_str() {
            "Name" => Cell::Name,
            "Model" if kind == "Agent" => Cell::Model,
            _ => Cell::Other,
        };
        self.shown = shown.iter().map(|(at, column)| (*at, holds(column))).collect();
        let namespace = self.namespaces.then(|| "NAMESPACE".to_owned());
        self.titles = namespace.into_iter().chain(shown.iter().map(|(_, column)| column.name.to_uppercase())).collect();
        self.widths = vec![0; self.titles.len()];
        self.titled = false;
        true
    }

    /// Returns the rows as lines, the first time below the titles. `prefix` is put before names.
    pub(super) fn lines(&mut self, prefix: &str, table: &ObjectTable) -> String {
        let mut lines: Vec<Vec<String>> = Vec::with_capacity(table.rows.len() + 1);
        if !std::mem::replace(&mut self.titled, true) {
            lines.push(self.titles.clone());
        }
        lines.extend(table.rows.iter().map(|row| self.cells(prefix, row)));
        for line in &lines {
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for line in lines {
            let mut row = String::new();
            for (cell, width) in line.iter().zip(&self.widths) {
                let _ = write!(row, "{cell:<width$}", width = width + COLUMN_GAP);
            }
            let _ = writeln!(text, "{}", row.trim_end());
        }
        text
    }

    fn cells(&self, prefix: &str, row: &TableRow) -> Vec<String> {
        let namespace = self.namespaces.then(|| metadata(row, "namespace").to_owned());
        let shown = self.shown.iter().map(|(at, holds)| {
            let cell = row.cells.get(*at).map(cell).unwrap_or_default();
            match holds {
                Cell::Name => format!("{prefix}{cell}"),
                Cell::Model => agent_model(&row.object).unwrap_or(cell),
                Cell::Other => cell,
            }
        });
        namespace.into_iter().chain(shown).collect()
    }
}

/// Returns the objects as `agent.agents.recif.dev/my-agent`, which kubectl accepts, too.
pub(super) fn names(kind: &ApiKind, table: &ObjectTable) -> String {
    let kind = kind.name.to_lowercase();
    table.rows.iter().map(|row| format!("{kind}.{GROUP}/{}\n", metadata(row, "name"))).collect()
}

fn metadata<'a>(row: &'a TableRow, field: &str) -> &'a str {
    row.object["metadata"][field].as_str().unwrap_or_default()
}

/// Returns the first line of a cell.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.split_once('\n') {
        Some((first, _)) => format!("{first}…"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(rows: Value) -> ObjectTable {
        serde_json::from_value(json!({
            "columnDefinitions": [{ "name": "Name", "priority": 0 }, { "name": "Phase", "priority": 0 },
                { "name": "Replicas", "priority": 0 }, { "name": "Model", "priority": 1 }],
            "rows": rows,
        }))
        .unwrap()
    }

    fn row(name: &str, phase: Value, replicas: Value) -> Value {
        json!({ "cells": [name, phase, replicas, "gpt"], "object": { "metadata": { "name": name, "namespace": "ns" } } })
    }

    #[test]
    fn a_table_has_the_columns_of_kubectl() {
        let rows =
            table(json!([row("my-agent", json!("Running"), json!(1)), row("b", json!(null), json!("two\nlines"))]));
        let mut columns = Columns::new(false, false);
        assert!(columns.begin("Agent", &rows));
        let expected = "\
NAME       PHASE     REPLICAS
my-agent   Running   1
b                    two…
";
        assert_eq!(columns.lines("", &rows), expected);
        assert!(!columns.begin("Agent", &rows), "the next page goes on");
        assert_eq!(columns.lines("", &table(json!([row("c", json!("Failed"), json!(0))]))), "c          Failed    0\n");
    }

    #[test]
    fn wide_has_all_columns_and_rows_may_say_where_they_are_from_and_of_which_kind() {
        let rows = table(json!([row("a", json!("Running"), json!(1))]));
        let mut columns = Columns::new(true, true);
        columns.begin("Agent", &rows);
        let expected = "\
NAMESPACE   NAME      PHASE     REPLICAS   MODEL
ns          agent/a   Running   1          gpt
";
        assert_eq!(columns.lines("agent/", &rows), expected);
    }

    #[test]
    fn an_agents_model_is_the_one_that_it_asks() {
        let mut row = row("a", json!("Running"), json!(1));
        row["object"]["spec"] = json!({ "modelId": "stub-echo", "modelRef": { "name": "seller" } });
        let rows = table(json!([row]));
        let mut columns = Columns::new(true, false);
        columns.begin("Agent", &rows);
        assert!(columns.lines("", &rows).contains("seller"), "{}", columns.lines("", &rows));
    }

    #[test]
    fn names_can_be_given_to_kubectl() {
        let rows = table(json!([row("a", json!(null), json!(null)), row("b", json!(null), json!(null))]));
        let kind = ApiKind::find("rmcp").unwrap();
        assert_eq!(names(kind, &rows), "remotemcpserver.agents.recif.dev/a\nremotemcpserver.agents.recif.dev/b\n");
    }
}
