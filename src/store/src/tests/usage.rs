//! Tests of the usage of models.

use crds::usage::{LATENCY_BUCKETS, Purpose, UsageKey, UsageTotals};

use super::*;
use crate::{HistoryScope, UsageGroup, UsageQuery, UsageRow, UsageStep, UsageSum};

/// First hour of a day.
const HOUR: i64 = 24 * 20_000;

fn totals(calls: u64) -> UsageTotals {
    let mut latency = [0; LATENCY_BUCKETS];
    latency[3] = calls;
    UsageTotals {
        calls,
        input: 10 * calls,
        cache_read: 4 * calls,
        output: 3 * calls,
        latency,
        ..UsageTotals::default()
    }
}

/// Returns the cell of a Pod for this caller after so many calls.
fn cell(name: &str, instance: &str, hour: i64, caller: &str, calls: u64) -> UsageRow {
    let key = UsageKey {
        hour,
        caller: caller.into(),
        provider: "openai".into(),
        model: "gpt".into(),
        purpose: Purpose::Turn,
    };
    UsageRow {
        workload: key_of(name),
        instance: instance.into(),
        key,
        totals: totals(calls),
        cost: Some((7 * calls, "EUR".into())),
    }
}

fn key_of(name: &str) -> ObjectKey {
    key("Agent", name)
}

async fn sums(place: &TestStore, group: UsageGroup, step: UsageStep) -> Vec<UsageSum> {
    let visible = HistoryScope::All;
    let query = UsageQuery { group, hours: (0, i64::MAX), step, namespaces: &[], visible: &visible, limit: 1000 };
    place.store.usage(&query).await.unwrap()
}

fn shown(sums: &[UsageSum]) -> Vec<String> {
    let one = |sum: &UsageSum| {
        let UsageSum { hour, scope, name, currency, totals, cost } = sum;
        format!("{hour} {scope}/{name} {} {} {cost}{currency}", totals.calls, totals.input)
    };
    sums.iter().map(one).collect()
}

pub(super) async fn reports_that_come_thrice_in_any_order_are_counted_once(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let versions: Vec<UsageRow> = (1..=9)
        .flat_map(|calls| ["pod-1", "pod-2"].map(|pod| cell("a", pod, HOUR, "ada", calls)))
        .chain((1..=5).map(|calls| cell("a", "pod-1", HOUR, "ben", calls)))
        .collect();
    // Each version three times; 7 is coprime to the number of them, so that old versions come after new ones.
    for at in 0..3 * versions.len() {
        let version = versions[(at * 7) % versions.len()].clone();
        writer.write_usage(&[version]).await.unwrap();
    }
    let found = sums(place, UsageGroup::Callers, UsageStep::Whole).await;
    assert_eq!(shown(&found), ["0 /ada 18 180 126EUR", "0 /ben 5 50 35EUR"]);
    assert_eq!(found[0].totals, totals(9).plus(&totals(9)));
    assert_eq!(found[1].totals, totals(5));
}

pub(super) async fn sums_are_those_of_what_is_asked_for(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let unpriced = UsageRow { cost: None, ..cell("a", "pod-1", HOUR + 25, "ada", 2) };
    let other = UsageRow {
        workload: ObjectKey { kind: "Flow", namespace: "other".into(), name: "f".into() },
        ..cell("f", "pod-3", HOUR + 1, "ada", 4)
    };
    writer.write_usage(&[cell("a", "pod-1", HOUR, "ada", 1), unpriced, other]).await.unwrap();
    assert_eq!(shown(&sums(place, UsageGroup::Agents, UsageStep::Whole).await), ["0 ns/a 2 20 0", "0 ns/a 1 10 7EUR"]);
    assert_eq!(shown(&sums(place, UsageGroup::Flows, UsageStep::Whole).await), ["0 other/f 4 40 28EUR"]);
    let hour = |hours: i64| HOUR + hours;
    let of_models = sums(place, UsageGroup::Models, UsageStep::Day).await;
    assert_eq!(shown(&of_models), [format!("{HOUR} openai/gpt 5 50 35EUR"), format!("{} openai/gpt 2 20 0", hour(24))]);
    let of_spaces = sums(place, UsageGroup::Namespaces, UsageStep::Hour).await;
    assert_eq!(
        shown(&of_spaces),
        [format!("{} /other 4 40 28EUR", hour(1)), format!("{} /ns 2 20 0", hour(25)), format!("{HOUR} /ns 1 10 7EUR"),]
    );
    let whole = |namespaces, visible, hours| UsageQuery {
        group: UsageGroup::Callers,
        hours,
        step: UsageStep::Whole,
        namespaces,
        visible,
        limit: 1000,
    };
    let (all, agents) = (HistoryScope::All, HistoryScope::Only(vec![("Agent".into(), "ns".into())]));
    let (none, other) = (HistoryScope::Only(Vec::new()), ["other".to_owned()]);
    for (query, calls) in [
        (whole(&[], &all, (0, i64::MAX)), 7),
        (whole(&[], &all, (hour(1), hour(25))), 4),
        (whole(&other, &all, (0, i64::MAX)), 4),
        (whole(&[], &agents, (0, i64::MAX)), 3),
        (whole(&other, &agents, (0, i64::MAX)), 0),
        (whole(&[], &none, (0, i64::MAX)), 0),
    ] {
        let found = place.store.usage(&query).await.unwrap();
        assert_eq!(found.iter().map(|sum| sum.totals.calls).sum::<u64>(), calls, "{query:?}");
    }
}

pub(super) async fn old_cells_are_folded_and_forgotten(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let cells = ["pod-1", "pod-2", "pod-3"].map(|pod| cell("a", pod, HOUR, "ada", 2));
    writer.write_usage(&cells).await.unwrap();
    writer.write_usage(&[cell("a", "pod-1", HOUR + 1, "ada", 1)]).await.unwrap();
    let before = sums(place, UsageGroup::Callers, UsageStep::Hour).await;
    for _ in 0..2 {
        writer.fold_usage((0, HOUR + 1)).await.unwrap();
        assert_eq!(place.table("SELECT instance FROM usage ORDER BY instance").await, [["folded EUR"], ["pod-1"]]);
        assert_eq!(sums(place, UsageGroup::Callers, UsageStep::Hour).await, before);
    }
    writer.delete_usage_before(HOUR + 1).await.unwrap();
    assert_eq!(sums(place, UsageGroup::Callers, UsageStep::Whole).await.len(), 1);
}

pub(super) async fn a_cost_without_measure_keeps_no_other_one_from_being_summed(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let huge = |pod: &str| UsageRow { cost: Some((u64::MAX, "EUR".into())), ..cell("b", pod, HOUR, "ben", 1) };
    writer.write_usage(&[huge("pod-1"), huge("pod-2"), huge("pod-3")]).await.unwrap();
    writer.write_usage(&[cell("a", "pod-1", HOUR, "ada", 9)]).await.unwrap();
    for is_folded in [false, true] {
        if is_folded {
            writer.fold_usage((0, HOUR + 1)).await.unwrap();
        }
        let found = sums(place, UsageGroup::Callers, UsageStep::Whole).await;
        assert_eq!((found[0].name.as_str(), found[0].cost), ("ada", 63), "{found:?}");
        assert!(found[1].cost >= 9_000_000_000_000_000_000, "{found:?}");
        // The sum of both.
        assert_eq!(sums(place, UsageGroup::Models, UsageStep::Whole).await.len(), 1);
    }
}
