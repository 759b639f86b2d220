use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::{super::testing::TestFleet, *};

const ANY: Selection<'static> = Selection {
    rows: &[],
    namespaces: &[],
    phases: &[],
    text: None,
    visible: &Visibility::ALL,
    sort: Sort::Attention,
    descending: false,
    limit: 100,
    after: None,
};

fn stage() -> TestFleet {
    let mut stage = TestFleet::new();
    stage.agent("b", "one", "Running");
    stage.agent("a", "two", "Failed");
    stage.agent("a", "three", "Running");
    stage.put("Prompt", "a", "words", json!({ "content": "c" }), json!({ "phase": "Available" }));
    stage.put("Prompt", "c", "new", json!({ "content": "c" }), json!(null));
    stage
}

fn names(stage: &TestFleet, selection: &Selection<'_>) -> String {
    let page = stage.fleet.list(selection);
    page.items.iter().map(|entry| entry.record.key.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_needs_attention_comes_first() {
    assert_eq!(names(&stage(), &ANY), "a/two c/new a/three b/one a/words");
}

#[test]
fn every_order_has_its_reverse() {
    let stage = stage();
    for (name, sort) in Sort::ALL {
        let forward = names(&stage, &Selection { sort: *sort, ..ANY });
        let backward = names(&stage, &Selection { sort: *sort, descending: true, ..ANY });
        let turned = backward.split(' ').rev().collect::<Vec<_>>().join(" ");
        assert_eq!(forward, turned, "{name}");
    }
    assert_eq!(names(&stage, &Selection { sort: Sort::Name, ..ANY }), "c/new b/one a/three a/two a/words");
    assert_eq!(names(&stage, &Selection { sort: Sort::Namespace, rows: &[0], ..ANY }), "a/three a/two b/one");
}

#[test]
fn a_list_holds_what_is_asked_for_and_may_be_seen() {
    let stage = stage();
    let one = |text: &str| vec![text.to_owned()];
    let (a, failed, none) = (one("a"), one("Failed"), one(""));
    let mut sights = vec![KindVisibility::Namespaces(HashSet::new()); KINDS.len()];
    sights[0] = KindVisibility::Namespaces(HashSet::from(["b".to_owned()]));
    let visible = Visibility::only(sights);
    for (selection, expected) in [
        (Selection { namespaces: &a, ..ANY }, "a/two a/three a/words"),
        (Selection { phases: &failed, ..ANY }, "a/two"),
        (Selection { phases: &none, ..ANY }, "c/new"),
        (Selection { text: Some("STUB-e"), ..ANY }, "a/two a/three b/one"),
        (Selection { text: Some("prompt"), namespaces: &a, ..ANY }, "a/words"),
        (Selection { rows: &[7], ..ANY }, "c/new a/words"),
        (Selection { visible: &visible, ..ANY }, "b/one"),
        (Selection { limit: 2, ..ANY }, "a/two c/new"),
    ] {
        assert_eq!(names(&stage, &selection), expected, "{selection:?}");
    }
}

#[test]
fn counts_are_of_all_kinds_and_phases_whichever_are_asked_for() {
    let failed = vec!["Failed".to_owned()];
    let page = stage().fleet.list(&Selection { rows: &[0], phases: &failed, ..ANY });
    let mut counts = page.counts;
    counts.iter_mut().for_each(|(_, phases)| phases.sort());
    assert_eq!(page.total, 1);
    assert_eq!(
        counts,
        [
            ("Agent", vec![("Failed".into(), 1), ("Running".into(), 2)]),
            ("Prompt", vec![("".into(), 1), ("Available".into(), 1)]),
        ]
    );
}

#[test]
fn a_place_is_told_only_to_the_list_it_is_of() {
    let page = stage().fleet.list(&Selection { limit: 1, ..ANY });
    let next = page.next.unwrap();
    let text = next.encode("q=x");
    assert_eq!(Cursor::decode(&text, "q=x"), Ok(next));
    assert_eq!(Cursor::decode(&text, "q=y"), Err(CursorError::OtherList));
    for broken in ["", "!", "e30", &text[1..]] {
        assert_eq!(Cursor::decode(broken, "q=x"), Err(CursorError::Unreadable), "{broken}");
    }
}

/// Change between two pages, of an object that the test does not look for.
#[derive(Debug, Clone)]
enum Between {
    Put(u8, &'static str),
    Delete(u8),
}

fn between() -> impl Strategy<Value = Between> {
    let phase = prop::sample::select(vec!["Pending", "Running", "Failed"]);
    prop_oneof![(0..30_u8, phase).prop_map(|(n, phase)| Between::Put(n, phase)), (0..30_u8).prop_map(Between::Delete)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_does_not_change_is_on_exactly_one_page(
        kept in prop::collection::btree_map(0..60_u8, prop::sample::select(vec!["Pending", "Running", "Failed"]), 0..30),
        changes in prop::collection::vec(prop::collection::vec(between(), 0..6), 40),
        limit in 1..7_usize,
        sort in prop::sample::select(Sort::ALL.iter().map(|(_, sort)| *sort).collect::<Vec<_>>()),
        descending: bool,
    ) {
        let mut stage = TestFleet::new();
        let namespace = |n: u8| format!("n{}", n % 3);
        for (n, phase) in &kept {
            stage.agent(&namespace(*n), &format!("kept-{n}"), phase);
        }
        let (mut seen, mut after) = (Vec::new(), None);
        for changes in changes.iter().chain(std::iter::repeat(&Vec::new())) {
            for change in changes {
                match change {
                    Between::Put(n, phase) => stage.agent(&namespace(*n), &format!("other-{n}"), phase),
                    Between::Delete(n) => stage.delete("Agent", &namespace(*n), &format!("other-{n}")),
                }
            }
            let page = stage.fleet.list(&Selection { limit, sort, descending, after: after.as_ref(), ..ANY });
            prop_assert!(page.items.len() <= limit);
            seen.extend(page.items.iter().map(|entry| entry.record.key.name.clone()).filter(|name| name.starts_with("kept")));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let distinct: BTreeSet<_> = seen.iter().cloned().collect();
        prop_assert_eq!(distinct.len(), seen.len(), "twice: {:?}", seen);
        prop_assert_eq!(distinct, kept.keys().map(|n| format!("kept-{n}")).collect());
    }
}
