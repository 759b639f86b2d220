//! Metrics of the objects, computed from the informer caches at a scrape. Every replica has them, so that they have no gap while
//! the Lease changes hands; queries take the maximum over the replicas.

use std::{collections::BTreeMap, fmt};

use cluster::cache::KindCaches;
use crds::{advice::known_reason, reason, why};
use meta::{Key, Phase, PhaseClass, PhasedObject};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};

/// Most series of `recif_object_failed`.
const MAX_FAILED: usize = 1000;
/// Reason of a label for all reasons without advice, which keeps the number of series low.
const OTHER: &str = "other";

/// Encodes the metrics of all objects in the caches.
pub(super) struct ObjectCollector {
    kinds: KindCaches,
    by_workload: bool,
}

impl fmt::Debug for ObjectCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCollector").finish_non_exhaustive()
    }
}

/// Numbers of objects.
#[derive(Debug, Default, PartialEq)]
struct ObjectCounts {
    /// By kind and phase.
    objects: BTreeMap<(&'static str, &'static str), u64>,
    /// Objects on their way to another phase, by kind and reason.
    waiting: BTreeMap<(&'static str, &'static str), u64>,
    /// By kind, key and reason.
    failed: BTreeMap<(&'static str, Key, &'static str), u64>,
    /// By kind and key.
    oscillating: BTreeMap<(&'static str, Key), u64>,
}

impl ObjectCounts {
    fn add<K: PhasedObject>(&mut self, object: &K, by_workload: bool) {
        let phase = object.phase().unwrap_or(K::Phase::FIRST);
        *self.objects.entry((K::KIND, phase.as_str())).or_default() += 1;
        let key = || if by_workload { object.key() } else { Key::new("", "") };
        let said = || {
            let reason = why::why(K::KIND, object.meta(), object.common()).reason;
            let known = reason.as_deref().and_then(known_reason);
            known.unwrap_or(OTHER)
        };
        match phase.class() {
            PhaseClass::Progressing | PhaseClass::Terminating => {
                *self.waiting.entry((K::KIND, said())).or_default() += 1;
            }
            PhaseClass::Failed => *self.failed.entry((K::KIND, key(), said())).or_default() += 1,
            PhaseClass::Settled | PhaseClass::Stopped => {}
        }
        let mut conditions = object.common().into_iter().flat_map(|status| &status.conditions);
        if conditions.any(|condition| condition.reason == reason::OSCILLATING) {
            *self.oscillating.entry((K::KIND, key())).or_default() += 1;
        }
    }
}

impl ObjectCollector {
    /// Creates the collector of these caches. Without `by_workload` failed objects are counted by kind and reason, without names.
    pub(super) fn new(kinds: KindCaches, by_workload: bool) -> Self {
        Self { kinds, by_workload }
    }
}

macro_rules! count {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        impl ObjectCollector {
            fn count(&self) -> ObjectCounts {
                let mut counts = ObjectCounts::default();
                $(for object in self.kinds.of::<crds::$module::$kind>().matching(|_, _| true) {
                    counts.add(&*object, self.by_workload);
                })+
                counts
            }
        }
    };
}
crds::for_each_kind!(count);

/// Returns the labels that name an object, and one more.
fn labels<'a>(kind: &'a str, key: &'a Key, more: Option<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    let own = [("kind", kind), ("namespace", key.namespace.as_str()), ("name", key.name.as_str())];
    own.into_iter().chain(more).collect()
}

impl Collector for ObjectCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.count();
        let help = "Objects by kind and phase.";
        let mut objects = encoder.encode_descriptor("recif_objects", help, None, MetricType::Gauge)?;
        for ((kind, phase), count) in &counts.objects {
            objects.encode_family(&[("kind", *kind), ("phase", *phase)])?.encode_gauge(count)?;
        }
        let help = "Objects on their way to another phase, by the reason that they wait for; other for a reason without advice.";
        let mut waiting = encoder.encode_descriptor("recif_objects_waiting", help, None, MetricType::Gauge)?;
        for ((kind, reason), count) in &counts.waiting {
            waiting.encode_family(&[("kind", *kind), ("reason", *reason)])?.encode_gauge(count)?;
        }
        let help = "1 while the object is Failed or in Error, with the reason.";
        let mut failed = encoder.encode_descriptor("recif_object_failed", help, None, MetricType::Gauge)?;
        for ((kind, key, reason), count) in counts.failed.iter().take(MAX_FAILED) {
            failed.encode_family(&labels(kind, key, Some(("reason", reason))))?.encode_gauge(count)?;
        }
        let help = "Objects that are Failed or in Error beyond the first 1000, which have no series of their own.";
        let mut dropped = encoder.encode_descriptor("recif_object_failed_dropped", help, None, MetricType::Gauge)?;
        dropped.encode_gauge(&(counts.failed.len().saturating_sub(MAX_FAILED) as u64))?;
        let help = "1 while the object keeps changing phase although nothing outside changes.";
        let mut oscillating = encoder.encode_descriptor("recif_oscillating", help, None, MetricType::Gauge)?;
        for ((kind, key), count) in counts.oscillating.iter().take(MAX_FAILED) {
            oscillating.encode_family(&labels(kind, key, None))?.encode_gauge(count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cluster::{ChangeSource, ObjectVersion, Versioned};
    use crds::Prompt;
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use serde_json::json;

    use super::*;

    fn prompt(kinds: &KindCaches, name: &str, phase: &str, reason: &str) {
        let ready = if phase == "Available" { "True" } else { "False" };
        let object: Prompt = serde_json::from_value(json!({
            "apiVersion": "agents.recif.dev/v1", "kind": "Prompt",
            "metadata": { "name": name, "namespace": "ns", "uid": name, "generation": 1 },
            "spec": { "content": "x" },
            "status": { "phase": phase, "observedGeneration": 1, "conditions": [{
                "type": "Ready", "status": ready, "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z" }] }
        }))
        .unwrap();
        let version = ObjectVersion { key: object.key(), uid: name.into(), resource_version: 1 };
        kinds.of::<Prompt>().observe(Versioned::new(version, object), ChangeSource::Watch);
    }

    fn lines(kinds: &KindCaches, by_workload: bool) -> Vec<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ObjectCollector::new(kinds.clone(), by_workload)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn objects_are_counted_by_what_they_are_in_and_named_while_they_have_failed() {
        let kinds = KindCaches::default();
        prompt(&kinds, "a", "Available", "Available");
        prompt(&kinds, "b", "Error", reason::INVALID_SPEC);
        prompt(&kinds, "c", "Resolving", reason::MISSING_DEPENDENCY);
        prompt(&kinds, "d", "Resolving", "OfANewerVersion");
        prompt(&kinds, "e", "Pending", reason::OSCILLATING);
        let named = |name: &str| format!("{{kind=\"Prompt\",namespace=\"ns\",name=\"{name}\"");
        let expected = [
            "recif_objects{kind=\"Prompt\",phase=\"Available\"} 1".to_owned(),
            "recif_objects{kind=\"Prompt\",phase=\"Error\"} 1".to_owned(),
            "recif_objects{kind=\"Prompt\",phase=\"Pending\"} 1".to_owned(),
            "recif_objects{kind=\"Prompt\",phase=\"Resolving\"} 2".to_owned(),
            "recif_objects_waiting{kind=\"Prompt\",reason=\"MissingDependency\"} 1".to_owned(),
            "recif_objects_waiting{kind=\"Prompt\",reason=\"Oscillating\"} 1".to_owned(),
            "recif_objects_waiting{kind=\"Prompt\",reason=\"other\"} 1".to_owned(),
            format!("recif_object_failed{},reason=\"InvalidSpec\"}} 1", named("b")),
            "recif_object_failed_dropped 0".to_owned(),
            format!("recif_oscillating{}}} 1", named("e")),
        ];
        assert_eq!(lines(&kinds, true), expected);
        kinds.of::<Prompt>().remove(&Key::new("ns", "b"), 2, ChangeSource::Watch);
        assert!(!lines(&kinds, true).iter().any(|line| line.contains("\"b\"")));
    }

    #[test]
    fn a_thousand_failed_objects_are_named_and_the_rest_is_a_number() {
        let kinds = KindCaches::default();
        (0..1005).for_each(|at| prompt(&kinds, &format!("p{at}"), "Error", reason::INVALID_SPEC));
        let named = lines(&kinds, true);
        assert_eq!(named.iter().filter(|line| line.starts_with("recif_object_failed{")).count(), 1000);
        assert!(named.contains(&"recif_object_failed_dropped 5".to_owned()));
        let label = "{kind=\"Prompt\",namespace=\"\",name=\"\",reason=\"InvalidSpec\"}";
        assert!(lines(&kinds, false).contains(&format!("recif_object_failed{label} 1005")));
    }
}
