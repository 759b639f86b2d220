//! Formats a timeline: as text for people, and as one JSON object per line for programs.

use std::fmt::Write;

use jiff::{Timestamp, tz::TimeZone};
use kube::api::DynamicObject;
use meta::CommonStatus;

use super::{PhaseSpan, TimelineEntry};
use crate::{error::CliError, output::PrintFormat};

/// Returns the common part of the status of an object of the API; empty if it is missing or cannot be parsed.
pub fn status_of(object: &DynamicObject) -> CommonStatus {
    let status = object.data.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}

/// Formatter of entries, one after the other; a new day gets a heading.
///
/// Invariant: `day` is that of the last entry, and `last_seq` that of the last written one.
#[derive(Debug, Default)]
pub struct PlainTimeline {
    day: String,
    last_seq: i64,
}

impl PlainTimeline {
    /// Returns the lines of one entry.
    pub fn entry(&mut self, entry: &TimelineEntry) -> String {
        let mut text = String::new();
        let day = utc(entry.at, "%Y-%m-%d");
        if day != self.day {
            let _ = writeln!(text, "\n{day} (UTC)");
            self.day = day;
        }
        if entry.written {
            let missing = entry.seq - self.last_seq - 1;
            if missing > 0 {
                let _ = writeln!(text, "          … {} not kept", steps(missing));
            }
            self.last_seq = entry.seq;
        }
        let time = utc(entry.at, "%H:%M:%S");
        let took = format!("{} ms", entry.took_ms);
        let line = format!("{time}  {:<26}{:<13}{took:>8}  {}", what(entry), entry.action, why(entry));
        let _ = writeln!(text, "{}", line.trim_end());
        if !entry.passed_over.is_empty() {
            let _ = writeln!(text, "{:59}passed over: {}", "", entry.passed_over);
        }
        text
    }
}

/// Returns the line with the time in each phase.
pub(super) fn summary(spans: &[PhaseSpan]) -> String {
    if spans.is_empty() {
        return "\nNo steps yet: is an operator running?\n".into();
    }
    let phases: Vec<_> = spans
        .iter()
        .map(|span| format!("{} {}{}", span.phase, duration(span.ms), if span.ongoing { " so far" } else { "" }))
        .collect();
    format!("\nTime in each phase: {}\n", phases.join(", "))
}

/// Returns one entry as one line of JSON, or as a document of YAML.
///
/// # Errors
/// [`CliError::Encode`], which would be a defect.
pub fn data(output: PrintFormat, entry: &TimelineEntry) -> Result<String, CliError> {
    if output == PrintFormat::Yaml {
        return output.document("a step", entry);
    }
    serde_json::to_string(entry)
        .map(|line| line + "\n")
        .map_err(|error| CliError::Encode { what: "a step", why: error.to_string() })
}

fn what(entry: &TimelineEntry) -> String {
    match (entry.is_move(), entry.from.is_empty(), entry.outcome.as_str()) {
        (true, true, _) => format!("→ {}", entry.to),
        (true, false, _) => format!("{} → {}", entry.from, entry.to),
        (false, _, "") => format!("{}, waiting", entry.to),
        (false, _, outcome) => format!("{}, {outcome}", entry.to),
    }
}

fn why(entry: &TimelineEntry) -> String {
    let mut text = entry.why();
    if let Some(ms) = entry.after_ms {
        let _ = write!(text, "{}(after {})", if text.is_empty() { "" } else { " " }, duration(ms));
    }
    if entry.times > 1 {
        let _ = write!(text, " ×{}", entry.times);
    }
    text
}

fn steps(count: i64) -> String {
    if count == 1 { "1 earlier step".into() } else { format!("{count} earlier steps") }
}

fn utc(at: Timestamp, format: &str) -> String {
    at.to_zoned(TimeZone::UTC).strftime(format).to_string()
}

/// Formats a duration for people: `0.4 s`, `29 s`, `3 m 20 s`, `2 h 5 m`, `3 d 4 h`; whole seconds have no fraction.
fn duration(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 if ms == 0 => "under 1 s".into(),
        0..=9 if ms % 1000 == 0 => format!("{seconds} s"),
        0..=9 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} m {} s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{} h {} m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}
