//! Compares the answer to a status write with what was sent.
//!
//! A CRD that is older than this build drops the fields that it does not know, and the API server says nothing of it. Where
//! steps are chosen by such a field, the same steps would be taken again and again: that is a defect, which is told by the
//! field's name. Any other field is only missed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use meta::PhasedObject;
use serde_json::Value;

use super::Table;

/// Fields of every status by which steps are chosen; those of the kind are [`Table::steered_by`].
const COMMON_DECISION_FIELDS: [&str; 7] =
    ["phase", "observedGeneration", "conditions", "specDigest", "renderVersion", "inputs", "failure"];

/// What the CRD of a kind drops: by field of the status, the paths within it, as the last write that held it showed.
#[derive(Debug, Default)]
pub(super) struct DroppedFields(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl DroppedFields {
    /// Learns from a write: the paths that are not as they were sent. `before` is the status that was changed.
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

    /// What it drops, as a sentence that says what to do.
    pub(super) fn sentence<K: PhasedObject>(&self) -> Option<String> {
        let known: BTreeSet<_> = self.lock().values().flatten().cloned().collect();
        (!known.is_empty()).then(|| sentence::<K>(&known))
    }

    /// Whether steps are chosen by what it drops.
    pub(super) fn affects_decisions<P>(&self, table: &Table<P>) -> bool {
        self.lock().values().any(|paths| affect_decisions(paths, table))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether steps are chosen by one of these.
pub(super) fn affect_decisions<P>(paths: &BTreeSet<String>, table: &Table<P>) -> bool {
    let field = |path: &str| path.split(['.', '[']).next().unwrap_or_default().to_owned();
    paths.iter().any(|path| {
        COMMON_DECISION_FIELDS.contains(&field(path).as_str()) || table.decision_paths.contains(&path.as_str())
    })
}

/// Names what the CRD of a kind drops.
pub(super) fn sentence<K: PhasedObject>(paths: &BTreeSet<String>) -> String {
    let fields: Vec<_> = paths.iter().map(|path| format!("status.{path}")).collect();
    format!(
        "the CRD {} drops {}: upgrade the CRDs, with `kubectl apply --server-side -k config/crd`",
        K::CRD,
        fields.join(", ")
    )
}

/// The paths at which what is stored is not what was sent; `[]` stands for every item of a list.
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
    use crate::toy::{Lamp, TABLE};

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
        let said = dropped.sentence::<Lamp>().unwrap_or_default();
        let start =
            "the CRD lamps.example.com drops status.children[].replicas, status.renderVersion: upgrade the CRDs";
        assert!(said.starts_with(start), "{said}");
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
