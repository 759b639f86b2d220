//! Detects status fields that the API server drops, by comparing the answer to a status write with the write.
//!
//! A CRD that is older than this build prunes the fields it does not know, without an error. If a step is decided by such a
//! field, the same steps would repeat forever: that is a defect, and it is reported with the name of the field. Any other dropped
//! field is only missing. It would be sent again in each step, so for a while it alone is no reason to write. A write that is
//! made for another reason carries it, and shows whether it is still dropped. What the driver does about a drop is in
//! `lost_write.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use meta::PhasedObject;
use serde_json::Value;

use super::Table;

/// Status fields of every kind that decide on steps; those of a single kind are in [`Table::decision_paths`].
const COMMON_DECISION_FIELDS: [&str; 7] =
    ["phase", "observedGeneration", "conditions", "specDigest", "renderVersion", "inputs", "failure"];

/// Time for which a dropped field is no reason to write; after that, a write shows whether the CRD was upgraded.
const WITHHELD_FOR: Duration = Duration::from_secs(600);

/// Time after that for which a drop that is not seen again still counts as recent.
const RECENT_FOR: Duration = Duration::from_secs(2 * WITHHELD_FOR.as_secs());

/// Status fields that the CRD of a kind drops.
#[derive(Debug, Default)]
pub(super) struct DroppedFields(Mutex<KnownFields>);

/// Invariant: no field is kept with an empty set of paths.
#[derive(Debug, Default)]
struct KnownFields {
    /// By top-level field, as seen in the last write that held the path.
    fields: BTreeMap<String, DroppedField>,
    /// True if a field was dropped and is stored by now, and no field is dropped any more.
    upgraded: bool,
}

#[derive(Debug)]
struct DroppedField {
    /// Paths in the field that are not stored as sent.
    paths: BTreeSet<String>,
    /// Time of the driver's clock up to which the field is no reason to write; [`WITHHELD_FOR`] after the last drop.
    until: Duration,
}

impl DroppedFields {
    /// Learns from a write, and returns the paths that are not stored as sent. `before` is the status before the write. What the
    /// write did not contain stays known.
    pub(super) fn learn<K: PhasedObject>(
        &self,
        before: &Value,
        sent: &Value,
        stored: &Value,
        now: Duration,
    ) -> BTreeSet<String> {
        let mut lost = BTreeSet::new();
        let mut known = self.lock();
        for (field, value) in
            sent.as_object().into_iter().flatten().filter(|(field, value)| before.get(field.as_str()) != Some(*value))
        {
            let mut paths = BTreeSet::new();
            differences(field, value, stored.get(field).unwrap_or(&Value::Null), &mut paths);
            lost.extend(paths.iter().cloned());
            let mut until = now + WITHHELD_FOR;
            let mut is_new = !paths.is_empty();
            if let Some(old) = known.fields.remove(field) {
                if paths.is_empty() {
                    until = old.until;
                }
                is_new = !paths.is_subset(&old.paths);
                let mut held = BTreeSet::new();
                collect_paths(field, value, &mut held);
                paths.extend(old.paths.into_iter().filter(|path| !held.contains(path)));
                if paths.is_empty() {
                    tracing::info!(kind = K::KIND, "the CRD {} keeps status.{field} now", K::CRD);
                    known.upgraded = known.fields.is_empty();
                }
            }
            if paths.is_empty() {
                continue;
            }
            if is_new {
                tracing::warn!(kind = K::KIND, "{}", sentence::<K>(&paths));
            }
            known.upgraded = false;
            known.fields.insert(field.clone(), DroppedField { paths, until });
        }
        lost
    }

    /// Leaves out of the status `after` what the API server would drop again: a field that differs from `before` in dropped paths
    /// alone is as before. Fields that decide on steps are always sent.
    pub(super) fn withhold<P>(
        &self,
        before: impl FnOnce() -> Value,
        after: &mut Value,
        table: &Table<P>,
        now: Duration,
    ) {
        let known = self.lock();
        let Some(after) = after.as_object_mut().filter(|_| !known.fields.is_empty()) else { return };
        let before = before();
        for (field, dropped) in &known.fields {
            let Some(sent) = after.get(field) else { continue };
            let kept = before.get(field).unwrap_or(&Value::Null);
            let mut changed = BTreeSet::new();
            differences(field, sent, kept, &mut changed);
            differences(field, kept, sent, &mut changed);
            if now >= dropped.until || !changed.is_subset(&dropped.paths) || affect_decisions(&dropped.paths, table) {
                continue;
            }
            match before.get(field) {
                Some(kept) => after.insert(field.clone(), kept.clone()),
                None => after.remove(field),
            };
        }
    }

    /// Reports whether fields were dropped, and a later write has shown that none is dropped any more.
    pub(super) fn is_upgraded(&self) -> bool {
        self.lock().upgraded
    }

    /// Returns the dropped fields as a sentence that says what to do; `None` if there are none.
    pub(super) fn sentence<K: PhasedObject>(&self) -> Option<String> {
        self.sentence_of::<K>(|_| true)
    }

    /// Returns that sentence of the fields whose drop was seen within the last half hour: the CRD may have been upgraded since.
    pub(super) fn recent_sentence<K: PhasedObject>(&self, now: Duration) -> Option<String> {
        self.sentence_of::<K>(|dropped| now < dropped.until + RECENT_FOR)
    }

    fn sentence_of<K: PhasedObject>(&self, is_told: impl Fn(&DroppedField) -> bool) -> Option<String> {
        let known = self.lock();
        let told = known.fields.values().filter(|dropped| is_told(dropped));
        let paths: BTreeSet<_> = told.flat_map(|dropped| &dropped.paths).cloned().collect();
        (!paths.is_empty()).then(|| sentence::<K>(&paths))
    }

    /// Reports whether a dropped field decides on steps.
    pub(super) fn affects_decisions<P>(&self, table: &Table<P>) -> bool {
        self.lock().fields.values().any(|dropped| affect_decisions(&dropped.paths, table))
    }

    fn lock(&self) -> MutexGuard<'_, KnownFields> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether one of these paths decides on steps.
pub(super) fn affect_decisions<P>(paths: &BTreeSet<String>, table: &Table<P>) -> bool {
    let field = |path: &str| path.split(['.', '[']).next().unwrap_or_default().to_owned();
    paths.iter().any(|path| {
        COMMON_DECISION_FIELDS.contains(&field(path).as_str()) || table.decision_paths.contains(&path.as_str())
    })
}

/// Returns the sentence that names the fields that the CRD of a kind drops.
pub(super) fn sentence<K: PhasedObject>(paths: &BTreeSet<String>) -> String {
    let fields: Vec<_> = paths.iter().map(|path| format!("status.{path}")).collect();
    format!(
        "the CRD {} drops {}: helm upgrade recif-crds <chart>, or kubectl apply --server-side --force-conflicts -k \
         config/crd",
        K::CRD,
        fields.join(", ")
    )
}

/// Collects the paths at which the stored value differs from the sent one; `[]` stands for every item of a list.
fn differences(path: &str, sent: &Value, stored: &Value, found: &mut BTreeSet<String>) {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => {
            for (key, value) in sent {
                differences(&format!("{path}.{key}"), value, stored.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(sent), Value::Array(stored)) if sent.len() == stored.len() => {
            for (sent, stored) in sent.iter().zip(stored) {
                differences(&format!("{path}[]"), sent, stored, found);
            }
        }
        (sent, stored) if sent == stored => {}
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// Collects the paths of everything that a value holds, named as in [`differences`].
fn collect_paths(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Null => return,
        Value::Object(fields) => {
            for (key, value) in fields {
                collect_paths(&format!("{path}.{key}"), value, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_paths(&format!("{path}[]"), item, found);
            }
        }
        _ => {}
    }
    found.insert(path.to_owned());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::example::{self, Lamp, LampPhase};

    const TABLE: Table<LampPhase> =
        Table { decision_paths: &["contentHash", "children", "children[].uid"], ..example::TABLE };

    fn learned(dropped: &DroppedFields, before: Value, sent: Value, stored: Value) -> Vec<String> {
        dropped.learn::<Lamp>(&before, &sent, &stored, Duration::ZERO).into_iter().collect()
    }

    #[test]
    fn a_dropped_field_is_named_until_a_write_of_it_holds() {
        let dropped = DroppedFields::default();
        let sent = json!({"phase": "Pending", "renderVersion": 3, "children": [{"uid": "u", "replicas": 1}]});
        assert_eq!(learned(&dropped, json!({}), sent.clone(), sent.clone()), Vec::<String>::new());
        let stored = json!({"phase": "Pending", "children": [{"uid": "u"}]});
        assert_eq!(learned(&dropped, json!({}), sent.clone(), stored), ["children[].replicas", "renderVersion"]);
        assert!(dropped.affects_decisions(&TABLE));
        let said = dropped.sentence::<Lamp>().unwrap_or_default();
        let expected = "the CRD lamps.example.com drops status.children[].replicas, status.renderVersion: helm upgrade \
                        recif-crds <chart>, or kubectl apply --server-side --force-conflicts -k config/crd";
        assert_eq!(said, expected);
        assert!(!dropped.is_upgraded());
        assert_eq!(learned(&dropped, json!({}), sent.clone(), sent), Vec::<String>::new());
        assert_eq!((dropped.sentence::<Lamp>(), dropped.is_upgraded()), (None, true));
    }

    #[test]
    fn a_write_disproves_only_the_paths_that_it_contains() {
        let dropped = DroppedFields::default();
        let nothing = Vec::<String>::new();
        let children = |child: Value| json!({ "children": [child] });
        let bare = || children(json!({"uid": "u"}));
        let said = || {
            let sentence = dropped.sentence::<Lamp>().unwrap_or_default();
            sentence
                .split_once(" drops ")
                .and_then(|(_, rest)| rest.split_once(": "))
                .map(|(paths, _)| paths.to_owned())
        };
        let (first, second) = ("status.children[].replicas", "status.children[].ready");
        let replicas = || children(json!({"uid": "u", "replicas": 1}));
        assert_eq!(learned(&dropped, json!({}), replicas(), bare()), ["children[].replicas"]);
        for without in [json!({"children": []}), bare(), children(json!({"uid": "u", "replicas": null}))] {
            assert_eq!(learned(&dropped, json!({}), without.clone(), without.clone()), nothing);
            assert_eq!((said().as_deref(), dropped.is_upgraded()), (Some(first), false), "{without}");
        }
        let ready = || children(json!({"uid": "u", "ready": true}));
        assert_eq!(learned(&dropped, json!({}), ready(), bare()), ["children[].ready"]);
        assert_eq!(said(), Some(format!("{second}, {first}")), "both are known");
        assert_eq!(learned(&dropped, json!({}), replicas(), replicas()), nothing);
        assert_eq!((said().as_deref(), dropped.is_upgraded()), (Some(second), false));
        assert_eq!(learned(&dropped, json!({}), ready(), ready()), nothing);
        assert_eq!((said(), dropped.is_upgraded()), (None, true));
    }

    #[test]
    fn a_drop_is_recent_for_half_an_hour_after_it_was_seen() {
        let dropped = DroppedFields::default();
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let is_recent = |n| dropped.recent_sentence::<Lamp>(minutes(n)).is_some();
        let (sent, stored) = (json!({"list": [{"a": 1, "b": 2}]}), json!({"list": [{"a": 1}]}));
        learned(&dropped, json!({}), sent.clone(), stored.clone());
        assert_eq!((is_recent(29), is_recent(30)), (true, false));
        dropped.learn::<Lamp>(&json!({}), &stored, &stored, minutes(20));
        assert_eq!((is_recent(29), is_recent(30)), (true, false), "a write without it shows nothing");
        dropped.learn::<Lamp>(&json!({}), &sent, &stored, minutes(20));
        assert_eq!((is_recent(49), is_recent(50)), (true, false));
        assert!(dropped.sentence::<Lamp>().is_some(), "it is not forgotten");
    }

    #[test]
    fn a_dropped_field_is_no_reason_to_write_for_ten_minutes() {
        let dropped = DroppedFields::default();
        let sent = json!({"phase": "A", "images": {"x": "1"}, "list": [{"a": 1, "b": 2}], "renderVersion": 3});
        let stored = json!({"phase": "A", "list": [{"a": 1}]});
        assert_eq!(learned(&dropped, json!({}), sent, stored.clone()), ["images", "list[].b", "renderVersion"]);
        let withheld = |mut after: Value, now| {
            dropped.withhold(|| stored.clone(), &mut after, &TABLE, Duration::from_secs(now));
            after
        };
        let again = json!({"phase": "B", "images": {"x": "2"}, "list": [{"a": 1, "b": 3}]});
        assert_eq!(withheld(again.clone(), 599), json!({"phase": "B", "list": [{"a": 1}]}));
        assert_eq!(withheld(again.clone(), 600), again);
        for sent in [
            json!({"phase": "A", "list": [{"a": 2, "b": 3}]}),
            json!({"phase": "A", "list": [{"b": 3}]}),
            json!({"phase": "A", "renderVersion": 3}),
        ] {
            assert_eq!(withheld(sent.clone(), 1), sent, "another change, and a field that decides on steps");
        }
    }

    #[test]
    fn only_what_was_written_is_compared() {
        let dropped = DroppedFields::default();
        let before = json!({"phase": "Running", "desiredReplicas": 1});
        let sent = json!({"phase": "Failed", "desiredReplicas": 1});
        assert_eq!(
            learned(&dropped, before, sent, json!({"phase": "Failed", "desiredReplicas": 4})),
            Vec::<String>::new()
        );
    }

    #[test]
    fn steps_are_chosen_by_the_content_hash_and_not_by_the_endpoint_or_a_childs_replicas() {
        let steers = |path: &str| affect_decisions(&BTreeSet::from([path.to_owned()]), &TABLE);
        assert!(
            ["phase", "failure.attempts", "conditions[].reason", "contentHash", "children"].into_iter().all(steers)
        );
        assert!(!["endpoint", "children[].replicas", "history", "images"].into_iter().any(steers));
    }
}
