//! Tests of the history of objects.

use super::*;
use crate::{Cursor, HistoryScope, ObjectTransition, TransitionPage};

fn moved(name: &str, uid: &str, version: i64, steps: impl IntoIterator<Item = TransitionRow>) -> Record {
    Record { steps: steps.into_iter().collect(), ..agent(name, uid, version) }
}

fn shown(steps: &[ObjectTransition]) -> Vec<String> {
    steps.iter().map(|step| format!("{}/{}#{}", step.name, step.uid, step.step.seq)).collect()
}

pub(super) async fn steps_are_kept_once_and_outlive_their_object(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [moved("a", "u1", 1, [step(1, 1, "Pending"), step(2, 2, "Running")])]).await;
    write(&mut writer, [moved("a", "u1", 2, [step(2, 2, "Running"), step(5, 5, "Failed")])]).await;
    remove(&mut writer, &agent("a", "u1", 2)).await;
    write(&mut writer, [moved("a", "u2", 9, [step(1, 9, "Pending")])]).await;
    let steps = place.store.history("Agent", "ns", "a", 10).await.unwrap();
    assert_eq!(shown(&steps), ["a/u1#1", "a/u1#2", "a/u1#5", "a/u2#1"]);
    let first = &steps[0].step;
    assert_eq!((first.from.as_str(), first.to.as_str(), first.at), ("Pending", "Pending", at(1)));
    assert_eq!((first.action.as_str(), first.reason.as_str()), ("accept", "valid"));
    assert_eq!((first.took_ms, first.trace_id.as_str()), (3, "trace-1"));
    assert_eq!(shown(&place.store.history("Agent", "ns", "a", 2).await.unwrap()), ["a/u1#5", "a/u2#1"]);
    assert_eq!(shown(&place.store.steps("u1", 1, 10).await.unwrap()), ["a/u1#2", "a/u1#5"]);
    assert_eq!(shown(&place.store.steps("u1", 0, 1).await.unwrap()), ["a/u1#5"]);
    let of = |uid: &str| steps.iter().filter(|step| step.uid == uid).map(|step| step.step.seq).collect::<Vec<_>>();
    assert_eq!(crate::gaps(0, of("u1")), [(3, 4)]);
}

pub(super) async fn the_fleets_steps_are_paged_newest_first(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    // Several steps at the same time, so that the time alone does not determine where a page ends.
    let steps = |uid: &str| {
        let steps = (1..=10).map(|seq| step(seq, seq / 3, "Running"));
        moved(&format!("of-{uid}"), uid, 1, steps)
    };
    write(&mut writer, [steps("u1"), steps("u2"), steps("u3")]).await;
    let TransitionPage { items: all, next } = place.store.latest(&HistoryScope::All, None, 100).await.unwrap();
    assert_eq!((all.len(), next), (30, None));
    assert!(
        all.is_sorted_by(|one, next| (one.step.at, &one.uid, one.step.seq) > (next.step.at, &next.uid, next.step.seq))
    );
    let mut paged = Vec::new();
    let mut before: Option<Cursor> = None;
    loop {
        let page = place.store.latest(&HistoryScope::All, before.as_ref(), 7).await.unwrap();
        paged.extend(page.items);
        // In the form in which a client sends it back.
        before = page.next.map(|next| next.to_string().parse().unwrap());
        if before.is_none() {
            break;
        }
    }
    assert_eq!(paged, all);
    assert!("2026_x".parse::<Cursor>().is_err());
}

pub(super) async fn only_what_is_visible_is_read(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let mut tool = moved("t", "u2", 2, [step(1, 2, "Available")]);
    (tool.key.kind, tool.workload) = ("Tool", None);
    let mut other = moved("o", "u3", 3, [step(1, 3, "Running")]);
    other.key.namespace = "other".into();
    write(&mut writer, [moved("a", "u1", 1, [step(1, 1, "Running")]), tool, other]).await;
    let read = async |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(kind, namespace)| ((*kind).into(), (*namespace).into())).collect();
        shown(&place.store.latest(&HistoryScope::Only(pairs), None, 10).await.unwrap().items)
    };
    assert_eq!(read(&[("Agent", "ns"), ("Agent", "other")]).await, ["o/u3#1", "a/u1#1"]);
    assert_eq!(read(&[("Tool", "ns")]).await, ["t/u2#1"]);
    assert!(read(&[]).await.is_empty());
}

pub(super) async fn old_steps_are_forgotten(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [moved("a", "u", 1, (1..=2_400).map(|seq| step(seq, seq, "Running")))]).await;
    let mut rounds = 1;
    while writer.delete_transitions_before(at(2_398)).await.unwrap() {
        rounds += 1;
    }
    assert_eq!(rounds, 3, "some at a time, so that no query waits for long");
    let left = place.table("SELECT seq FROM transitions ORDER BY seq").await;
    assert_eq!(left, [["2398"], ["2399"], ["2400"]]);
}
