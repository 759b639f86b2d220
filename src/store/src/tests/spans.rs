//! Tests of the spans of traces.

use super::*;
use crate::{HistoryScope, RunQuery, SpanRow};

/// Returns a span of this workload, which starts at that nanosecond and takes ten.
fn span(trace: &str, span: &str, workload: ObjectKey, started: i64) -> SpanRow {
    SpanRow {
        trace: trace.into(),
        span: span.into(),
        workload,
        conversation: String::new(),
        started,
        ended: started + 10,
        has_failed: false,
        received: started,
        is_of_platform: false,
        document: format!(r#"{{"name":"{span} é"}}"#),
    }
}

fn elsewhere() -> ObjectKey {
    ObjectKey { kind: "Flow", namespace: "other".into(), name: "f".into() }
}

async fn ids(place: &TestStore, trace: &str) -> Vec<String> {
    place.store.spans(trace, 100).await.unwrap().into_iter().map(|span| span.span).collect()
}

async fn runs(place: &TestStore, query: RunQuery<'_>) -> Vec<String> {
    let runs = place.store.runs(&query).await.unwrap();
    let shown = runs.iter().map(|run| {
        let length = run.ended - run.started;
        format!("{} {} {length} {} {}", run.trace, run.started, run.spans, run.failed)
    });
    shown.collect()
}

pub(super) async fn the_first_span_of_an_id_stays(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let first = span("t1", "s1", key("Agent", "a"), 5);
    writer.write_spans(&[span("t1", "s2", elsewhere(), 7), first.clone(), first.clone()]).await.unwrap();
    let replaced = SpanRow { workload: elsewhere(), document: "{}".into(), ..first.clone() };
    writer.write_spans(&[replaced, span("t2", "s1", elsewhere(), 6)]).await.unwrap();
    let found = place.store.spans("t1", 100).await.unwrap();
    assert_eq!(found.iter().map(|span| span.span.as_str()).collect::<Vec<_>>(), ["s1", "s2"]);
    let stored = &found[0];
    assert_eq!((stored.kind.as_str(), stored.namespace.as_str(), stored.name.as_str()), ("Agent", "ns", "a"));
    assert_eq!((stored.started, stored.ended, &stored.document), (5, 15, &first.document));
    assert_eq!(place.store.spans("t1", 1).await.unwrap().len(), 1);
    assert!(ids(place, "t3").await.is_empty());
}

pub(super) async fn a_span_of_the_platform_goes_before_one_that_has_its_ids(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let forged = span("t1", "s1", elsewhere(), 1);
    let own = SpanRow { has_failed: true, is_of_platform: true, ..span("t1", "s1", key("Agent", "a"), 5) };
    let others = [span("t1", "s0", elsewhere(), 7), span("t1", "s2", elsewhere(), 8)];
    writer.write_spans(&[forged.clone(), others[0].clone()]).await.unwrap();
    // Twice, as one that is sent again after a lost answer; and beside spans of workloads.
    writer.write_spans(&[others[1].clone(), own.clone(), own.clone(), others[0].clone()]).await.unwrap();
    writer.write_spans(&[SpanRow { document: "{}".into(), ..forged }]).await.unwrap();
    let found = place.store.spans("t1", 100).await.unwrap();
    assert_eq!(found.iter().map(|span| span.span.as_str()).collect::<Vec<_>>(), ["s1", "s0", "s2"]);
    let stored = &found[0];
    assert_eq!((stored.kind.as_str(), stored.namespace.as_str(), stored.name.as_str()), ("Agent", "ns", "a"));
    assert_eq!((stored.started, stored.ended, &stored.document), (5, 15, &own.document));
    let bytes = [&own, &others[0], &others[1]].map(|row| u64::try_from(row.size()).unwrap());
    assert_eq!(writer.span_bytes().await.unwrap(), bytes.iter().sum::<u64>());
    let all = HistoryScope::All;
    let every = RunQuery { kind: None, namespace: None, name: None, conversation: None, visible: &all, limit: 10 };
    assert_eq!(runs(place, every).await, ["t1 5 13 3 1"]);
}

pub(super) async fn runs_are_those_that_are_asked_for_and_visible(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let failed = SpanRow { has_failed: true, ..span("t1", "s2", elsewhere(), 30) };
    let talk = SpanRow { conversation: "c".into(), ..span("t2", "s1", key("Agent", "a"), 40) };
    let rows = [span("t1", "s1", key("Agent", "a"), 5), failed, talk, span("t2", "s2", key("Agent", "b"), 41)];
    writer.write_spans(&rows).await.unwrap();
    let (all, agents) = (HistoryScope::All, HistoryScope::Only(vec![("Agent".into(), "ns".into())]));
    let none = HistoryScope::Only(Vec::new());
    let every = RunQuery { kind: None, namespace: None, name: None, conversation: None, visible: &all, limit: 10 };
    let (one, two) = ("t1 5 35 2 1", "t2 40 11 2 0");
    assert_eq!(runs(place, every).await, [two, one]);
    assert_eq!(runs(place, RunQuery { limit: 1, ..every }).await, [two]);
    assert_eq!(runs(place, RunQuery { kind: Some("Flow"), ..every }).await, [one]);
    assert_eq!(runs(place, RunQuery { namespace: Some("ns"), name: Some("b"), ..every }).await, [two]);
    assert_eq!(runs(place, RunQuery { namespace: Some("other"), name: Some("b"), ..every }).await, [""; 0]);
    assert_eq!(runs(place, RunQuery { conversation: Some("c"), ..every }).await, [two]);
    // Of a run that others took part in, only what is visible counts.
    assert_eq!(runs(place, RunQuery { visible: &agents, ..every }).await, [two, "t1 5 10 1 0"]);
    assert_eq!(runs(place, RunQuery { visible: &agents, kind: Some("Flow"), ..every }).await, [""; 0]);
    assert_eq!(runs(place, RunQuery { visible: &none, ..every }).await, [""; 0]);
}

pub(super) async fn old_spans_go_by_age_and_by_size(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    assert_eq!(writer.span_bytes().await.unwrap(), 0);
    let rows: Vec<_> = (0..1200).map(|number| span("t", &format!("s{number:04}"), key("Agent", "a"), number)).collect();
    writer.write_spans(&rows).await.unwrap();
    let bytes = |rows: &[SpanRow]| rows.iter().map(|row| u64::try_from(row.size()).unwrap()).sum::<u64>();
    assert_eq!(writer.span_bytes().await.unwrap(), bytes(&rows));
    assert!(!writer.delete_spans_before(50).await.unwrap());
    assert_eq!(writer.span_bytes().await.unwrap(), bytes(&rows[50..]));
    assert_eq!(writer.delete_oldest_spans(1000).await.unwrap(), 1000);
    assert_eq!(writer.span_bytes().await.unwrap(), bytes(&rows[1050..]));
    assert_eq!(ids(place, "t").await.first().map(String::as_str), Some("s1050"));
    assert_eq!(writer.delete_oldest_spans(1000).await.unwrap(), 150);
    assert_eq!(writer.span_bytes().await.unwrap(), 0);
}
