//! Detects status fields that the API server drops, by comparing the answer to a status write with the write.
//!
//! A CRD that is older than this build prunes the fields it does not know, without an error. If a step is decided by such a
//! field, the same steps would repeat forever: that is a defect, and it is reported with the name of the field. Any other dropped
//! field is only missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use meta::PhasedObject;
use serde_json::Value;

use super::Table;

/// Status fields of every kind that decide on steps; those of a single kind are in [`Table::decision_paths`].
const COMMON_DECISION_FIELDS: [&str; 7] =
    ["phase", "observedGeneration", "conditions", "specDigest", "renderVersion", "inputs", "failure"];

/// Status fields that the CRD of a kind drops: by top-level field the paths in it, as seen in the last write that held the field.
///
/// Invariant: no field is kept with an empty set of paths.
#[derive(Debug, Default)]
pub(super) struct DroppedFields(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl DroppedFields {
    /// Learns from a write, and returns the paths that are not stored as sent. `before` is the status before the write.
    pub(super) fn learn<K: PhasedObject>(&self, before: &Value, sent: &Value, stored: &Value) -> BTreeSet<String> {
        let mut lost = BTreeSet::new();
        let mut known = self.lock();
        for (field, value) in
            sent.as_object().into_iter().flatten().filter(|(field, value)| before.get(field.as_str()) != Some(*value))
        {
            let mut paths = BTreeSet::new();
            differences(field, value, stored.get(field).unwrap_or(&Value::Null), &mut paths);
            if paths.is_empty() {
                known.remove(field);
                continue;
            }
            lost.extend(paths.iter().cloned());
            if known.insert(field.clone(), paths.clone()).as_ref() != Some(&paths) {
                tracing::warn!(kind = K::KIND, "{}", sentence::<K>(&paths));
            }
        }
        lost
    }

    /// Returns the dropped fields as a sentence that says what to do; `None` if there are none.
    pub(super) fn sentence<K: PhasedObject>(&self) -> Option<String> {
        let known: BTreeSet<_> = self.lock().values().flatten().cloned().collect();
        (!known.is_empty()).then(|| sentence::<K>(&known))
    }

    /// Reports whether a dropped field decides on steps.
    pub(super) fn affects_decisions<P>(&self, table: &Table<P>) -> bool {
        self.lock().values().any(|paths| affect_decisions(paths, table))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
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
        "the CRD {} drops {}: upgrade the CRDs, with `kubectl apply --server-side -k config/crd`",
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::example::{self, Lamp, LampPhase};

    const TABLE: Table<LampPhase> =
        Table { decision_paths: &["contentHash", "children", "children[].uid"], ..example::TABLE };

    fn learned(dropped: &DroppedFields, before: Value, sent: Value, stored: Value) -> Vec<String> {
        dropped.learn::<Lamp>(&before, &sent, &stored).into_iter().collect()
    }

    #[test]
    fn a_dropped_field_is_named_until_a_write_of_it_holds() {
        let dropped = DroppedFields::default();
        let sent = json!({"phase": "Pending", "renderVersion": 3, "children": [{"uid": "u", "replicas": 1}]});
        assert_eq!(learned(&dropped, json!({}), sent.clone(), sent.clone()), Vec::<String>::new());
        let stored = json!({"phase": "Pending", "children": [{"uid": "u"}]});
        assert_eq!(learned(&dropped, json!({}), sent.clone(), stored), ["children[].replicas", "renderVersion"]);
        assert!(dropped.affects_decisions(&TABLE));
        let text = dropped.sentence::<Lamp>().unwrap_or_default();
        let start =
            "the CRD lamps.example.com drops status.children[].replicas, status.renderVersion: upgrade the CRDs";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(learned(&dropped, json!({}), sent.clone(), sent), Vec::<String>::new());
        assert_eq!(dropped.sentence::<Lamp>(), None);
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
