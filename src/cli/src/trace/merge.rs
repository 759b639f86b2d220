//! Merges the object's history and the operator's logs into one timeline.
//!
//! A step is the same in both if its trace id is; the log then adds the exact time and details that a status does not
//! hold. Steps that only the logs hold are placed between the written ones, by `seq` and then by time. Neither source
//! has to be complete: a history holds 20 entries, and logs are lost with their Pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use meta::HistoryEntry;

use super::{PhaseSpan, TimelineEntry};

/// Returns all steps of both, oldest first; consecutive waits that say the same are one entry.
pub fn merge<'a>(history: impl IntoIterator<Item = &'a HistoryEntry>, lines: &[TimelineEntry]) -> Vec<TimelineEntry> {
    let mut entries: Vec<TimelineEntry> = history.into_iter().map(TimelineEntry::from).collect();
    let mut lines = lines.to_vec();
    lines.sort_by_key(|line| line.at);
    // A write that says nothing new carries the trace id of the entry before it: only the first line is that entry.
    let mut seen = BTreeSet::new();
    for mut line in lines {
        let first = seen.insert((line.trace_id.clone(), line.from.clone(), line.to.clone()));
        match entries.iter_mut().find(|entry| entry.written && first && same_step(entry, &line)) {
            Some(entry) => complete(entry, line),
            None => {
                line.written = first && line.is_move() && !line.trace_id.is_empty();
                entries.push(line);
            }
        }
    }
    ordered(entries)
}

/// Returns the time that the object was in each phase, in the order of first entry. `now` is `None` if the object is
/// gone.
pub fn spans(entries: &[TimelineEntry], now: Option<Timestamp>) -> Vec<PhaseSpan> {
    let mut order = Vec::new();
    let mut total: BTreeMap<&str, i64> = BTreeMap::new();
    let mut add = |phase, ms: i64| {
        if !order.contains(&phase) {
            order.push(phase);
        }
        *total.entry(phase).or_default() += ms.max(0);
    };
    let mut current: Option<&TimelineEntry> = None;
    for entry in entries.iter().filter(|entry| entry.is_move()) {
        if let Some(begin) = current {
            add(begin.to.as_str(), between(begin.at, entry.at).unwrap_or_default());
        }
        current = Some(entry);
    }
    if let (Some(begin), Some(now)) = (current, now) {
        add(begin.to.as_str(), between(begin.at, now).unwrap_or_default());
    }
    let last = current.filter(|_| now.is_some()).map(|entry| entry.to.as_str());
    let span = |phase: &str| PhaseSpan {
        phase: phase.to_owned(),
        ms: total.get(phase).copied().unwrap_or_default(),
        ongoing: last == Some(phase),
    };
    order.iter().map(|phase| span(phase)).collect()
}

/// Reports whether a line is the same step as a written one. A line without a trace id is a step that was not written.
fn same_step(written: &TimelineEntry, line: &TimelineEntry) -> bool {
    let step = |entry: &TimelineEntry| (entry.trace_id.clone(), entry.from.clone(), entry.to.clone());
    !line.trace_id.is_empty() && step(written) == step(line)
}

/// Adds to an entry of the history the details that the log has of the same step.
fn complete(entry: &mut TimelineEntry, line: TimelineEntry) {
    if entry.reason.is_empty() {
        entry.reason = line.reason;
    }
    entry.at = line.at;
    entry.outcome = line.outcome;
    entry.waiting_for = line.waiting_for;
    entry.passed_over = line.passed_over;
    entry.notes = line.notes;
}

fn ordered(mut entries: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    place_unnumbered(&mut entries);
    entries.sort_by_key(|entry| (entry.seq, entry.at));
    let mut kept: Vec<TimelineEntry> = Vec::with_capacity(entries.len());
    for entry in entries {
        match kept.last_mut() {
            Some(last) if !entry.written && entry.repeats(last) => last.times += entry.times,
            _ => kept.push(entry),
        }
    }
    let mut since: Option<Timestamp> = None;
    for entry in kept.iter_mut().filter(|entry| entry.is_move()) {
        entry.after_ms = since.and_then(|begin| between(begin, entry.at));
        since = Some(entry.at);
    }
    kept
}

/// Places steps that were not written and have no number after the last written one before them.
fn place_unnumbered(entries: &mut [TimelineEntry]) {
    let written: Vec<_> = entries.iter().filter(|entry| entry.written).map(|entry| (entry.at, entry.seq)).collect();
    for entry in entries.iter_mut().filter(|entry| entry.seq == 0) {
        let before = written.iter().filter(|(at, _)| *at <= entry.at).map(|(_, seq)| *seq);
        entry.seq = before.max().unwrap_or_default();
    }
}

/// Returns the time between two steps in milliseconds. If one of the two is known to the second only, the result is in
/// whole seconds, and `None` within one second.
fn between(begin: Timestamp, end: Timestamp) -> Option<i64> {
    let exact = [begin, end].iter().all(|at| at.subsec_nanosecond() != 0);
    let seconds = (end.as_second() - begin.as_second()).max(0) * 1000;
    if exact {
        Some((end.as_millisecond() - begin.as_millisecond()).max(0))
    } else {
        Some(seconds).filter(|ms| *ms > 0)
    }
}
