//! Adds the variables of OpenTelemetry to the container of a workload: those that its status pins, and those that name it.
//!
//! Variables that the spec's `env` sets stay the user's. Where spans hold content, the runner gets the names of those from Secrets,
//! so that it masks their values.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kind::{RenderedWorkload, WorkloadKind};
use crate::{kind::Context, ports::ChildKind};

/// Variable with the attributes of a process.
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// Variable with its name.
const SERVICE: &str = "OTEL_SERVICE_NAME";
/// Variable that lets spans hold content.
const CAPTURE_CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
/// Variable with the names of variables whose values no span holds.
const SECRET_VARIABLES: &str = "RECIF_SECRET_VARIABLES";

/// Returns the variables that a template gets which is rendered now.
pub(super) fn offered<K: WorkloadKind>(cx: &Context) -> BTreeMap<String, String> {
    if K::HAS_TELEMETRY { cx.settings.telemetry.clone() } else { BTreeMap::new() }
}

/// Adds the pinned variables to the container of the workload, and the names of its secret ones where spans hold content.
pub(super) fn add<K: WorkloadKind>(cr: &K, rendered: &mut RenderedWorkload) {
    let variables = variables(cr, &rendered.content_hash);
    let deployment = rendered.running.iter_mut().find(|manifest| manifest.child.kind == ChildKind::Deployment);
    let containers = deployment.and_then(|manifest| manifest.body.pointer_mut("/spec/template/spec/containers"));
    let name = K::KIND.to_ascii_lowercase();
    let mut containers = containers.and_then(Value::as_array_mut).into_iter().flatten();
    let container = containers.find(|container| container["name"] == name.as_str()).and_then(Value::as_object_mut);
    let Some(container) = container else { return };
    let set = container.get("env").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_set = |name: &str| set.iter().any(|entry| entry["name"] == name);
    let mut added: Vec<Value> = variables.iter().filter(|(name, _)| !is_set(name)).map(entry).collect();
    let captures = K::HAS_TELEMETRY && set.iter().chain(&added).any(captures_content);
    let sources = container.get("envFrom").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let secret = secret_variables(&cr.key().name, set, sources);
    let secret = secret.filter(|_| captures && !is_set(SECRET_VARIABLES));
    added.extend(secret.map(|names| entry((&SECRET_VARIABLES.to_owned(), &names))));
    if added.is_empty() {
        return;
    }
    if let Some(env) = container.entry("env").or_insert_with(|| json!([])).as_array_mut() {
        env.append(&mut added);
    }
}

/// Returns the pinned variables with those that name the workload; none if nothing is pinned.
fn variables<K: WorkloadKind>(cr: &K, version: &str) -> BTreeMap<String, String> {
    let pinned = cr.status().map(|status| &status.telemetry).filter(|pinned| !pinned.is_empty());
    let Some(mut variables) = pinned.cloned() else { return BTreeMap::new() };
    let key = cr.key();
    let given = variables.remove(RESOURCE).map(|given| format!("{given},")).unwrap_or_default();
    // Pods with another hash are other Pods anyway.
    let own = format!("k8s.namespace.name={},recif.kind={},service.version={version}", key.namespace, K::KIND);
    variables.insert(RESOURCE.to_owned(), format!("{given}{own}"));
    variables.insert(SERVICE.to_owned(), key.name);
    variables
}

fn entry((name, value): (&String, &String)) -> Value {
    json!({ "name": name, "value": value })
}

/// Reports whether the variable lets spans hold content, or may: its value can be elsewhere.
fn captures_content(entry: &Value) -> bool {
    let value = entry["value"].as_str().unwrap_or_default();
    let is_true = value.trim().eq_ignore_ascii_case("true");
    entry["name"] == CAPTURE_CONTENT && (is_true || entry.get("valueFrom").is_some())
}

/// Returns the names of those variables that the kubelet sets from Secrets, and `PREFIX*` for all keys of one; `None`: there are none.
/// Of the Secret that is rendered for the workload itself the runner knows which variables hold what.
fn secret_variables(workload: &str, env: &[Value], sources: &[Value]) -> Option<String> {
    let is_secret = |entry: &&Value| entry.pointer("/valueFrom/secretKeyRef").is_some();
    let named = env.iter().filter(is_secret).filter_map(|entry| entry["name"].as_str().map(str::to_owned));
    let is_own = |secret: &str| secret.strip_suffix("-config") == Some(workload);
    let whole = sources.iter().filter(|source| {
        let secret = source.pointer("/secretRef/name").and_then(Value::as_str);
        secret.is_some_and(|secret| !is_own(secret))
    });
    let whole = whole.map(|source| format!("{}*", source["prefix"].as_str().unwrap_or_default()));
    let names: Vec<String> = named.chain(whole).collect();
    (!names.is_empty()).then(|| names.join(","))
}
