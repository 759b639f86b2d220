//! Prints the progress during the run and the table at its end.

use std::{fmt::Display, io::Write as _};

/// One measured value with its goal.
#[derive(Debug, Clone)]
pub(crate) struct BenchMeasurement {
    what: String,
    goal: String,
    measured: String,
    /// Result of the comparison: true if the goal was reached.
    pub(crate) ok: bool,
}

impl BenchMeasurement {
    /// Creates a row.
    pub(crate) fn new(what: impl Into<String>, goal: impl Into<String>, measured: impl Into<String>, ok: bool) -> Self {
        Self { what: what.into(), goal: goal.into(), measured: measured.into(), ok }
    }

    /// Creates a row whose goal is an upper bound in this unit.
    pub(crate) fn at_most<T: PartialOrd + Display>(what: impl Into<String>, goal: T, measured: T, unit: &str) -> Self {
        let ok = measured <= goal;
        Self::new(what, format!("≤ {goal} {unit}"), format!("{measured:.2} {unit}"), ok)
    }

    /// Creates a row for a value that could not be measured.
    pub(crate) fn failed(what: &str, error: &anyhow::Error) -> Self {
        Self::new(what, "is measured", format!("{error:#}"), false)
    }

    /// Appends a note in parentheses to the measured value.
    pub(crate) fn with_note(mut self, note: &str) -> Self {
        self.measured = format!("{} ({note})", self.measured);
        self
    }
}

/// Prints one line of progress to standard error.
pub(crate) fn print_progress(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints the table as Markdown to standard output.
pub(crate) fn print(rows: &[BenchMeasurement]) {
    let mut lines = vec![["what", "goal", "measured", "ok"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let ok = if row.ok { "yes" } else { "NO" };
        [row.what.clone(), row.goal.clone(), row.measured.clone(), ok.to_owned()]
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths = [0, 1, 2, 3].map(width);
    let mut out = std::io::stdout().lock();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if index == 0 {
            let _ = writeln!(out, "|{}|", widths.map(|width| "-".repeat(width + 2)).join("|"));
        }
    }
}
