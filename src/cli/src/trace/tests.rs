//! Tests of the timeline, from a history, from log lines, and from both.

use meta::HistoryEntry;
use serde_json::{Value, json};

use super::*;

fn history(entries: Value) -> Vec<HistoryEntry> {
    serde_json::from_value(entries).unwrap()
}

/// Returns a phase-trace line at 11:03:`second`.
fn line(second: f64, from: &str, to: &str, fields: Value) -> TimelineEntry {
    let mut all = json!({ "timestamp": format!("2026-11-21T11:03:{second:06.3}Z"), "target": "phase_trace", "uid": "u",
        "from": from, "to": to, "action": "resolve", "took_ms": 1 });
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    parse_line(&all.to_string(), "u").unwrap()
}

fn plain(entries: &[TimelineEntry]) -> String {
    let mut plain = PlainTimeline::default();
    entries.iter().map(|entry| plain.entry(entry)).collect()
}

fn an_agent() -> Vec<HistoryEntry> {
    history(json!([
        { "seq": 1, "at": "2026-11-21T11:03:01Z", "to": "Pending", "action": "Admit", "reason": "first sight",
          "tookMs": 2, "traceId": "t1" },
        { "seq": 2, "at": "2026-11-21T11:03:01Z", "from": "Pending", "to": "Resolving", "action": "accept",
          "reason": "valid", "tookMs": 1, "traceId": "t2" },
        { "seq": 3, "at": "2026-11-21T11:03:01Z", "from": "Resolving", "to": "Resolving", "action": "resolve",
          "reason": "Tool/weather does not exist", "tookMs": 1, "traceId": "t3" },
        { "seq": 4, "at": "2026-11-21T11:03:30Z", "from": "Resolving", "to": "Rendering", "action": "resolve",
          "reason": "everything is there", "tookMs": 4, "traceId": "t4" },
    ]))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_step_is_told_once_whichever_source_tells_of_it_first() {
    let lines = [line(1.4, "Resolving", "Resolving", json!({ "seq": 3, "trace_id": "t3", "outcome": "waiting" }))];
    let identities = |entries: Vec<TimelineEntry>| -> BTreeSet<String> {
        entries.iter().filter(|entry| !entry.is_move()).flat_map(TimelineEntry::identities).collect()
    };
    let both = identities(merge(&an_agent(), &lines));
    assert!(!both.is_disjoint(&identities(merge(&an_agent(), &[]))), "the history first");
    assert!(!both.is_disjoint(&identities(merge(&[], &lines))), "the log first");
}

#[test]
fn a_line_of_a_log_is_taken_apart_from_the_time_it_was_read() {
    let (read, line) = split_timestamp("2026-11-21T11:03:01.400000001Z {\"a\": 1}");
    assert_eq!((read, line), (Some(at("2026-11-21T11:03:01.400000001Z")), "{\"a\": 1}"));
    assert_eq!(split_timestamp("cut off"), (None, "cut off"));
}

#[test]
fn the_history_alone_is_a_timeline() {
    let expected = "
2026-11-21 (UTC)
11:03:01  → Pending                 Admit            2 ms  first sight
11:03:01  Pending → Resolving       accept           1 ms  valid
11:03:01  Resolving, waiting        resolve          1 ms  Tool/weather does not exist
11:03:30  Resolving → Rendering     resolve          4 ms  everything is there (after 29 s)
";
    assert_eq!(plain(&merge(&an_agent(), &[])), expected);
}

#[test]
fn logs_add_exact_times_short_waits_and_who_was_passed_over() {
    let waiting = |fields: Value| line(1.4, "Resolving", "Resolving", fields);
    let again = line(
        15.0,
        "Resolving",
        "Resolving",
        json!({ "seq": 3, "outcome": "waiting", "waiting_for": "Tool/weather: Pending" }),
    );
    let lines = [
        line(
            30.9,
            "Resolving",
            "Rendering",
            json!({ "seq": 4, "trace_id": "t4", "outcome": "moved", "passed_over": "recover" }),
        ),
        waiting(
            json!({ "seq": 3, "trace_id": "t3", "outcome": "waiting", "waiting_for": "Tool/weather does not exist" }),
        ),
        again.clone(),
        line(
            16.0,
            "Resolving",
            "Resolving",
            json!({ "seq": 3, "outcome": "waiting", "waiting_for": "Tool/weather: Pending" }),
        ),
        again,
    ];
    let expected = "
2026-11-21 (UTC)
11:03:01  → Pending                 Admit            2 ms  first sight
11:03:01  Pending → Resolving       accept           1 ms  valid
11:03:01  Resolving, waiting        resolve          1 ms  Tool/weather does not exist
11:03:15  Resolving, waiting        resolve          1 ms  Tool/weather: Pending ×3
11:03:30  Resolving → Rendering     resolve          4 ms  everything is there (after 29 s)
                                                           passed over: recover
";
    let merged = merge(&an_agent(), &lines);
    assert_eq!(plain(&merged), expected);
    assert_eq!(merged.last().unwrap().at, at("2026-11-21T11:03:30.9Z"));
}

#[test]
fn a_write_that_says_nothing_new_is_not_taken_for_the_entry_before_it() {
    let running = history(json!([
        { "seq": 1, "at": "2026-11-21T11:03:05Z", "from": "Deploying", "to": "Running", "action": "deploy", "traceId": "t1" },
    ]));
    let lines = [
        line(
            5.2,
            "Deploying",
            "Running",
            json!({ "seq": 1, "trace_id": "t1", "outcome": "moved", "action": "deploy" }),
        ),
        line(9.0, "Running", "Running", json!({ "seq": 1, "trace_id": "t1", "outcome": "acted", "action": "monitor" })),
    ];
    let merged = merge(&running, &lines);
    let reported: Vec<_> = merged.iter().map(|entry| (entry.at.to_string(), entry.outcome.as_str())).collect();
    assert_eq!(reported, [("2026-11-21T11:03:05.2Z".into(), "moved"), ("2026-11-21T11:03:09Z".into(), "acted")]);
}

#[test]
fn moves_that_fell_out_of_the_history_are_told_from_the_logs_and_gaps_are_said() {
    let kept = history(json!([
        { "seq": 9, "at": "2026-11-21T11:03:40Z", "from": "Rendering", "to": "Deploying", "action": "render", "traceId": "t9" },
    ]));
    let lines = [line(30.0, "Resolving", "Rendering", json!({ "seq": 8, "trace_id": "t8", "outcome": "moved" }))];
    let expected = "
2026-11-21 (UTC)
          … 7 earlier steps not kept
11:03:30  Resolving → Rendering     resolve          1 ms
11:03:40  Rendering → Deploying     render           0 ms  (after 10 s)
";
    assert_eq!(plain(&merge(&kept, &lines)), expected);
}

#[test]
fn time_in_a_phase_is_the_sum_of_its_stays() {
    let mut steps = an_agent();
    steps.extend(history(json!([
        { "seq": 5, "at": "2026-11-21T11:03:31Z", "from": "Rendering", "to": "Resolving", "action": "render" },
    ])));
    let entries = merge(&steps, &[]);
    let reported =
        |now| spans(&entries, now).into_iter().map(|span| (span.phase, span.ms, span.ongoing)).collect::<Vec<_>>();
    let expected = |ms, ongoing| {
        vec![
            ("Pending".to_owned(), 0, false),
            ("Resolving".to_owned(), ms, ongoing),
            ("Rendering".to_owned(), 1000, false),
        ]
    };
    assert_eq!(reported(Some(at("2026-11-21T11:03:41Z"))), expected(39_000, true));
    assert_eq!(reported(None), expected(29_000, false));
    let summary = text::summary(&spans(&entries, Some(at("2026-11-21T11:03:41Z"))));
    assert_eq!(summary, "\nTime in each phase: Pending under 1 s, Resolving 39 s so far, Rendering 1 s\n");
}

#[test]
fn an_object_without_steps_says_what_to_look_at() {
    assert!(text::summary(&spans(&[], None)).contains("is an operator running?"));
}

#[test]
fn json_is_one_object_per_line_with_the_names_of_the_api() {
    let entries = merge(&an_agent(), &[]);
    let text = data(PrintFormat::Json, &entries[3]).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(text.matches('\n').count(), 1);
    assert_eq!(value["from"], "Resolving");
    assert_eq!(value["afterMs"], 29_000);
    assert_eq!(value["traceId"], "t4");
}

#[test]
fn what_was_read_in_pieces_is_told_once() {
    let object: DynamicObject = serde_json::from_value(json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Agent",
        "metadata": { "name": "a" }, "status": { "history": an_agent() } }))
    .unwrap();
    let wait = line(15.0, "Resolving", "Resolving", json!({ "seq": 3, "outcome": "waiting", "waiting_for": "x" }));
    let mut known = SeenSteps::default();
    let first = known.merge(&object, vec![wait.clone()]);
    let second = known.merge(&object, vec![wait]);
    assert_eq!(first, second);
    assert_eq!(first.len(), 5);
}

#[test]
fn times_known_to_the_second_yield_no_fractions() {
    let times = |times: [&str; 4]| -> Vec<HistoryEntry> {
        let phases = ["Pending", "Resolving", "Rendering", "Deploying"];
        let entry = |(index, at): (usize, &&str)| {
            json!({ "seq": index + 1, "at": at, "from": if index == 0 { "" } else { phases[index - 1] }, "to": phases[index],
                "action": "x", "tookMs": 1 })
        };
        history(times.iter().enumerate().map(entry).collect())
    };
    let reported = |times: &[HistoryEntry]| {
        let entries = merge(times, &[]);
        let after: Vec<_> = entries.iter().map(|entry| entry.after_ms).collect();
        (after, text::summary(&spans(&entries, Some(at("2026-11-21T11:03:40.9Z")))))
    };
    let seconds =
        times(["2026-11-21T11:03:34Z", "2026-11-21T11:03:34.789114Z", "2026-11-21T11:03:35Z", "2026-11-21T11:03:39Z"]);
    let (after, summary) = reported(&seconds);
    assert_eq!(after, [None, None, Some(1000), Some(4000)]);
    assert_eq!(
        summary,
        "\nTime in each phase: Pending under 1 s, Resolving 1 s, Rendering 4 s, Deploying 1 s so far\n"
    );
    let exact = times([
        "2026-11-21T11:03:34.500000Z",
        "2026-11-21T11:03:34.789114Z",
        "2026-11-21T11:03:35.000001Z",
        "2026-11-21T11:03:39.250000Z",
    ]);
    let (after, summary) = reported(&exact);
    assert_eq!(after, [None, Some(289), Some(211), Some(4250)]);
    assert_eq!(
        summary,
        "\nTime in each phase: Pending 0.2 s, Resolving 0.2 s, Rendering 4.2 s, Deploying 1.6 s so far\n"
    );
}

#[test]
fn an_object_or_a_run_is_named() {
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        trace: TraceArgs,
    }

    let parse = |words: &[&str]| Cli::try_parse_from(["trace"].iter().chain(words)).map(|cli| cli.trace);
    assert_eq!(parse(&["agent", "a"]).unwrap().object, ["agent", "a"]);
    let run = parse(&["--run", "0af7", "-o", "json"]).unwrap();
    assert_eq!((run.run.as_deref(), run.output, run.object.len()), (Some("0af7"), PrintFormat::Json, 0));
    for words in [&[][..], &["agent/a", "--run", "0af7"], &["--run", "0af7", "-f"], &["--run"], &["a", "b", "c"]] {
        assert!(parse(words).is_err(), "{words:?}");
    }
}
