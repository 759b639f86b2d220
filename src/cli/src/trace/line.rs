//! Parses one line of the operator's log.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::TimelineEntry;

/// Returns the step of a log line, if it is a phase-trace line of this object. A line on an idle check is not a step.
///
/// Any other line of a log, whole or cut off, is ignored and not an error.
pub fn parse_line(line: &str, uid: &str) -> Option<TimelineEntry> {
    let Value::Object(outer) = serde_json::from_str(line).ok()? else { return None };
    if outer.get("target")?.as_str()? != "phase_trace" {
        return None;
    }
    let fields = outer.get("fields").and_then(Value::as_object).unwrap_or(&outer);
    if text(fields, "uid") != uid || text(fields, "outcome") == "idle" {
        return None;
    }
    Some(TimelineEntry {
        seq: number(fields, "seq"),
        at: outer.get("timestamp")?.as_str()?.parse::<Timestamp>().ok()?,
        from: text(fields, "from"),
        to: text(fields, "to"),
        action: text(fields, "action"),
        outcome: text(fields, "outcome"),
        reason: text(fields, "reason"),
        waiting_for: text(fields, "waiting_for"),
        passed_over: text(fields, "passed_over"),
        notes: text(fields, "notes"),
        took_ms: number(fields, "took_ms"),
        after_ms: None,
        trace_id: text(fields, "trace_id"),
        run: text(fields, "run"),
        written: false,
        times: 1,
    })
}

fn text(fields: &Map<String, Value>, name: &str) -> String {
    match fields.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn number(fields: &Map<String, Value>, name: &str) -> i64 {
    match fields.get(name) {
        Some(Value::Number(number)) => number.as_i64().unwrap_or_default(),
        Some(Value::String(text)) => text.parse().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"timestamp":"2026-11-21T11:03:53.250417Z","level":"INFO","kind":"Agent","ns":"default",
        "name":"a","uid":"u-1","generation":1,"seq":3,"action":"resolve","from":"Resolving","to":"Resolving",
        "outcome":"waiting","reason":"","waiting_for":"Tool/weather: phase Error","passed_over":"",
        "took_ms":2,"trace_id":"t-3","target":"phase_trace"}"#;

    #[test]
    fn a_trace_line_of_the_object_is_a_step() {
        let entry = parse_line(LINE, "u-1").unwrap();
        assert_eq!((entry.seq, entry.took_ms, entry.written), (3, 2, false));
        assert_eq!(entry.waiting_for, "Tool/weather: phase Error");
        assert_eq!(entry.at.to_string(), "2026-11-21T11:03:53.250417Z");
    }

    #[test]
    fn fields_may_be_in_an_object_of_their_own() {
        let line = r#"{"timestamp":"2026-11-21T11:03:53Z","target":"phase_trace",
            "fields":{"uid":"u-1","seq":"7","to":"Running","passed_over":["drain","recover"]}}"#;
        let entry = parse_line(line, "u-1").unwrap();
        assert_eq!((entry.seq, entry.passed_over.as_str()), (7, "drain, recover"));
    }

    #[test]
    fn every_other_line_is_passed_over() {
        let other_target = LINE.replace("phase_trace", "cluster::watch");
        let cut_off = &LINE[..LINE.len() / 2];
        let no_time = LINE.replace("2026-11-21T11:03:53.250417Z", "now");
        let idle = LINE.replace("waiting\",", "idle\",");
        for line in ["", &idle, "panicked at src/main.rs", "[]", "{}", cut_off, &other_target, &no_time] {
            assert_eq!(parse_line(line, "u-1"), None, "{line}");
        }
        assert_eq!(parse_line(LINE, "u-2"), None, "another object's");
    }
}
