//! Reading an object: the fields by which a user judges it.

use std::collections::BTreeMap;

use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::Value;

/// Any object of the cluster.
pub(crate) type Object = DynamicObject;
/// Objects of one kind and namespace by name.
pub(crate) type ObjectsByName = BTreeMap<String, Object>;

/// What scenarios ask of an object. What is absent reads as empty, zero or null.
pub(crate) trait ObjectExt {
    /// The value at a JSON pointer outside `metadata`, such as `/status/phase`.
    fn at(&self, pointer: &str) -> &Value;
    /// Text at a JSON pointer.
    fn text(&self, pointer: &str) -> &str;
    /// Number at a JSON pointer.
    fn number(&self, pointer: &str) -> i64;
    /// `status.phase`.
    fn phase(&self) -> &str;
    /// The condition of this type.
    fn condition(&self, type_: &str) -> ConditionView<'_>;
    /// Whether the status speaks of the newest spec.
    fn is_current(&self) -> bool;
    /// Phase Running, Ready, and both said of the newest spec.
    fn is_running(&self) -> bool;
    /// `metadata.generation`.
    fn generation(&self) -> i64;
    /// `metadata.resourceVersion`.
    fn revision(&self) -> u64;
    /// `metadata.uid`.
    fn id(&self) -> String;
    /// The moves of `status.history` later than this one, as `Running>Deploying`.
    fn transitions_after(&self, seq: i64) -> Vec<String>;
    /// The newest entry of `status.history`.
    fn last_seq(&self) -> i64;
    /// One line for people.
    fn describe(&self) -> String;
}

/// A condition; an absent one has empty texts.
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
    /// Whether reason or message contain this.
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

/// The phases that a series of observations went through, each run of the same phase once.
pub(crate) fn phases(seen: &[Object]) -> Vec<&str> {
    let mut phases: Vec<&str> = seen.iter().map(ObjectExt::phase).filter(|phase| !phase.is_empty()).collect();
    phases.dedup();
    phases
}
