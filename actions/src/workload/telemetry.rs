//! Adds the variables of OpenTelemetry to the container of a workload: those that its status pins, and those that name it.
//!
//! Variables that the spec's `env` sets stay the user's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::kind::{RenderedWorkload, WorkloadKind};
use crate::{kind::Context, ports::ChildKind};

/// Variable with the attributes of a process.
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// Variable with its name.
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// Returns the variables that a template gets which is rendered now.
pub(super) fn offered<K: WorkloadKind>(cx: &Context) -> BTreeMap<String, String> {
    if K::HAS_TELEMETRY { cx.settings.telemetry.clone() } else { BTreeMap::new() }
}

/// Adds the pinned variables to the container of the workload.
pub(super) fn add<K: WorkloadKind>(cr: &K, rendered: &mut RenderedWorkload) {
    let pinned = cr.status().map(|status| &status.telemetry).filter(|pinned| !pinned.is_empty());
    let Some(mut variables) = pinned.cloned() else { return };
    let key = cr.key();
    let given = variables.remove(RESOURCE).map(|given| format!("{given},")).unwrap_or_default();
    // Pods with another hash are other Pods anyway.
    let (namespace, version) = (&key.namespace, &rendered.content_hash);
    let own = format!("k8s.namespace.name={namespace},recif.kind={},service.version={version}", K::KIND);
    variables.insert(RESOURCE.to_owned(), format!("{given}{own}"));
    variables.insert(SERVICE.to_owned(), key.name);
    let deployment = rendered.running.iter_mut().find(|manifest| manifest.child.kind == ChildKind::Deployment);
    let containers = deployment.and_then(|manifest| manifest.body.pointer_mut("/spec/template/spec/containers"));
    let name = K::KIND.to_ascii_lowercase();
    let mut containers = containers.and_then(Value::as_array_mut).into_iter().flatten();
    let container = containers.find(|container| container["name"] == name.as_str()).and_then(Value::as_object_mut);
    let env = container.and_then(|fields| fields.entry("env").or_insert_with(|| json!([])).as_array_mut());
    let Some(env) = env else { return };
    let set: BTreeSet<String> = env.iter().filter_map(|entry| entry["name"].as_str().map(str::to_owned)).collect();
    let missing = variables.into_iter().filter(|(name, _)| !set.contains(name));
    env.extend(missing.map(|(name, value)| json!({ "name": name, "value": value })));
}
