//! Accessors for the fields of an object by which a user judges it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::Value;

/// Object of any kind.
pub(crate) type Object = DynamicObject;
/// Objects of one kind and namespace by name.
pub(crate) type ObjectsByName = BTreeMap<String, Object>;

/// Accessors that scenarios use. An absent field is empty, zero or null.
pub(crate) trait ObjectExt {
    /// Returns the value at a JSON pointer outside `metadata`, such as `/status/phase`.
    fn at(&self, pointer: &str) -> &Value;
    /// Returns the text at a JSON pointer.
    fn text(&self, pointer: &str) -> &str;
    /// Returns the number at a JSON pointer.
    fn number(&self, pointer: &str) -> i64;
    /// Returns `status.phase`.
    fn phase(&self) -> &str;
    /// Returns the condition of this type.
    fn condition(&self, type_: &str) -> ConditionView<'_>;
    /// Reports whether the status is of the current generation.
    fn is_current(&self) -> bool;
    /// Reports whether the phase is Running and Ready is True, both at the current generation.
    fn is_running(&self) -> bool;
    /// Returns `metadata.generation`.
    fn generation(&self) -> i64;
    /// Returns `metadata.resourceVersion`.
    fn revision(&self) -> u64;
    /// Returns `metadata.uid`.
    fn id(&self) -> String;
    /// Returns the phase changes of `status.history` after this entry, as `Running>Deploying`.
    fn transitions_after(&self, seq: i64) -> Vec<String>;
    /// Returns the highest `seq` of `status.history`.
    fn last_seq(&self) -> i64;
    /// Describes the object in one line.
    fn describe(&self) -> String;
}

/// Condition; an absent one has empty texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConditionView<'a> {
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    pub(crate) observed_generation: i64,
}

impl ConditionView<'_> {
    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }
    pub(crate) fn is_false(&self) -> bool {
        self.status == "False"
    }
    /// Reports whether the reason or the message contains this text.
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.reason.contains(text) || self.message.contains(text)
    }
}

impl ObjectExt for Object {
    fn at(&self, pointer: &str) -> &Value {
        self.data.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn text(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    fn number(&self, pointer: &str) -> i64 {
        self.at(pointer).as_i64().unwrap_or_default()
    }

    fn phase(&self) -> &str {
        self.text("/status/phase")
    }

    fn condition(&self, type_: &str) -> ConditionView<'_> {
        let all = self.at("/status/conditions").as_array().map(Vec::as_slice).unwrap_or_default();
        let found = all.iter().find(|condition| condition["type"] == type_);
        let text = |key: &str| found.and_then(|condition| condition[key].as_str()).unwrap_or_default();
        ConditionView {
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            observed_generation: found.and_then(|it| it["observedGeneration"].as_i64()).unwrap_or_default(),
        }
    }

    fn is_current(&self) -> bool {
        self.number("/status/observedGeneration") == self.generation()
    }

    fn is_running(&self) -> bool {
        self.phase() == "Running" && self.is_current() && self.condition("Ready").is_true()
    }

    fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    fn revision(&self) -> u64 {
        self.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    fn id(&self) -> String {
        self.uid().unwrap_or_default()
    }

    fn transitions_after(&self, seq: i64) -> Vec<String> {
        history(self)
            .filter(|entry| entry["seq"].as_i64() > Some(seq) && entry["from"] != entry["to"])
            .map(|entry| {
                format!("{}>{}", entry["from"].as_str().unwrap_or_default(), entry["to"].as_str().unwrap_or_default())
            })
            .collect()
    }

    fn last_seq(&self) -> i64 {
        history(self).filter_map(|entry| entry["seq"].as_i64()).max().unwrap_or_default()
    }

    fn describe(&self) -> String {
        let kind = self.types.as_ref().map_or("", |types| types.kind.as_str());
        let mut line = format!("{kind}/{}", self.name_any());
        if !self.phase().is_empty() {
            line += &format!(
                " phase {} (generation {}, observed {})",
                self.phase(),
                self.generation(),
                self.number("/status/observedGeneration")
            );
        }
        for type_ in ["Ready", "ReferencesResolved", "Available"] {
            let condition = self.condition(type_);
            if !condition.status.is_empty() {
                line += &format!(", {type_}={} {} \"{}\"", condition.status, condition.reason, condition.message);
            }
        }
        line
    }
}

fn history(object: &Object) -> impl Iterator<Item = &Value> {
    object.at("/status/history").as_array().into_iter().flatten()
}

/// Returns when the operator decided on the last phase change that fits, by the phases before and after.
pub(crate) fn moved_at(object: &Object, fits: impl Fn(&str, &str) -> bool) -> Option<Timestamp> {
    let phase = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let moves = history(object).filter(|entry| entry["from"] != entry["to"]);
    let last = moves.filter(|entry| fits(&phase(entry, "from"), &phase(entry, "to"))).last()?;
    last["at"].as_str()?.parse().ok()
}

/// Returns the phases of a series of observations, without consecutive duplicates.
pub(crate) fn phases(seen: &[Object]) -> Vec<&str> {
    let mut phases: Vec<&str> = seen.iter().map(ObjectExt::phase).filter(|phase| !phase.is_empty()).collect();
    phases.dedup();
    phases
}
