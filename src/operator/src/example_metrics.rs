//! Metrics of an operator in which each event has happened: what the documentation of the metrics is made from.

use std::{fmt, time::Duration};

use cluster::{ChangeSource, ObjectVersion, Versioned, cache::KindCaches};
use crds::{Prompt, reason};
use machine::StepOutcome;
use meta::{Key, PhasedObject as _};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;

use crate::{
    metrics::OperatorMetrics,
    scaler::{Direction, ScaleGauges, WorkloadId},
};

/// Returns the metrics of an operator in which each event has happened, as OpenMetrics text, for the documentation.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn example_metrics() -> Result<String, fmt::Error> {
    let (mut registry, kinds) = (Registry::default(), KindCaches::default());
    let OperatorMetrics { steps, scaler, api, spans } = OperatorMetrics::new(&mut registry, &kinds, true);
    api.record_examples();
    spans.sent(1);
    steps.leading(true);
    steps.queued("Agent", 0);
    steps.crd_outdated("Agent", false);
    steps.stepped("Agent", "Pending", StepOutcome::Moved, Duration::ZERO);
    let weather = WorkloadId { kind: "Agent", key: Key::new("default", "weather") };
    scaler.evaluated(&weather, Some(ScaleGauges::default()));
    scaler.decided(&weather, Direction::Up);
    for (version, phase, reason) in
        [(1, "Resolving", reason::MISSING_DEPENDENCY), (2, "Available", "Available"), (3, "Error", reason::OSCILLATING)]
    {
        observe(&kinds, "greeting", version, phase, reason);
    }
    observe(&kinds, "farewell", 1, "Resolving", reason::MISSING_DEPENDENCY);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Takes a version of a Prompt into its cache.
fn observe(kinds: &KindCaches, name: &str, version: u64, phase: &str, reason: &str) {
    let time = "2026-01-01T00:00:00Z";
    let object = json!({
        "apiVersion": format!("{}/{}", crds::GROUP, crds::VERSION),
        "kind": Prompt::KIND,
        "metadata": { "namespace": "default", "name": name, "generation": 1, "creationTimestamp": time },
        "spec": { "content": "x" },
        "status": {
            "phase": phase,
            "observedGeneration": 1,
            "conditions": [
                { "type": "Ready", "status": "False", "reason": reason, "message": "", "lastTransitionTime": time },
            ],
            "history": [{ "at": time, "from": "", "to": phase, "action": "" }],
        },
    });
    if let Ok(object) = serde_json::from_value::<Prompt>(object) {
        let version = ObjectVersion { key: object.key(), uid: name.to_owned(), resource_version: version };
        kinds.of::<Prompt>().observe(Versioned::new(version, object), ChangeSource::Watch);
    }
}
