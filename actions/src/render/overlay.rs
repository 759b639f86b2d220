//! Merges `spec.podTemplate` into the Pod template, in the manner of a strategic merge patch: objects deeply, lists of named
//! elements by name.
//!
//! The overlay may change nearly everything; the API server decides whether the result is a valid Pod. Rejected here is what the
//! API server would accept although the Pods would be lost to their owner: other labels, another hash, reserved variables, a way
//! around the sidecar.
//!
//! A `null` removes a field. An element that is a choice of one source (a variable, a volume, a mount) replaces the one of the
//! same name, and a probe's handler replaces the other handler: the API server would reject both together.

use serde_json::{Map, Value};

use super::{
    RenderError,
    labels::{MANAGED_BY_LABEL, NAME, child_labels},
    workload_parts::WorkloadParts,
};

/// Returns the merge key of a list, and whether an element is merged or replaced.
fn key_of(list: &str) -> Option<(&'static str, bool)> {
    match list {
        "containers" | "initContainers" | "ports" | "imagePullSecrets" => Some(("name", true)),
        "env" | "volumes" => Some(("name", false)),
        "volumeMounts" => Some(("mountPath", false)),
        _ => None,
    }
}

/// Handlers of a probe, of which it may have only one.
const HANDLERS: [&str; 4] = ["exec", "grpc", "httpGet", "tcpSocket"];

/// Merges `overlay` into the Pod template of a workload.
pub(super) fn merge(mut template: Value, overlay: &Value, running: &WorkloadParts<'_>) -> Result<Value, RenderError> {
    let Value::Object(fields) = overlay else {
        return Err(RenderError::PodTemplate("must be an object with metadata and spec".to_owned()));
    };
    if let Some(unknown) = fields.keys().find(|field| !matches!(field.as_str(), "metadata" | "spec")) {
        return Err(RenderError::PodTemplate(format!(
            "{unknown:?} is not a field of a Pod template: use metadata and spec"
        )));
    }
    check_metadata(overlay, running)?;
    check_env(overlay, running)?;
    if let Some(sidecar) = &running.sidecar {
        sidecar.check_overlay(overlay, running.kind)?;
    }
    merge_value("", &mut template, overlay)?;
    Ok(template)
}

fn check_metadata(overlay: &Value, running: &WorkloadParts<'_>) -> Result<(), RenderError> {
    let ours = child_labels(running.label, &running.name);
    let labels = overlay.pointer("/metadata/labels");
    for label in [NAME, running.label, MANAGED_BY_LABEL] {
        let wanted = labels.and_then(|labels| labels.get(label));
        if wanted.is_some_and(|wanted| wanted.as_str() != ours.get(label).map(String::as_str)) {
            let kind = running.kind;
            return Err(RenderError::PodTemplate(format!("label {label} finds the Pods of the {kind}: remove it")));
        }
    }
    let annotations = overlay.pointer("/metadata/annotations");
    for annotation in [running.hash.0, crds::ROLLOUT_AT] {
        if annotations.is_some_and(|annotations| annotations.get(annotation).is_some()) {
            return Err(RenderError::PodTemplate(format!("annotation {annotation} is the operator's: remove it")));
        }
    }
    // Any other type would replace the operator's object as a whole.
    for field in ["/metadata", "/metadata/labels", "/metadata/annotations", "/spec"] {
        if overlay.pointer(field).is_some_and(|value| !value.is_object()) {
            return Err(RenderError::PodTemplate(format!("{} must be an object", &field[1..])));
        }
    }
    Ok(())
}

fn check_env(overlay: &Value, running: &WorkloadParts<'_>) -> Result<(), RenderError> {
    let containers = overlay.pointer("/spec/containers").and_then(Value::as_array);
    let ours = containers.into_iter().flatten().filter(|container| container["name"] == running.kind);
    for variable in ours.filter_map(|container| container["env"].as_array()).flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        if running.reserved.is_reserved(name) {
            let (field, kind) = ("podTemplate", running.kind);
            return Err(RenderError::EnvReserved { field, kind, name: name.to_owned() });
        }
    }
    Ok(())
}

fn merge_value(field: &str, base: &mut Value, overlay: &Value) -> Result<(), RenderError> {
    match (base, overlay) {
        (Value::Object(base), Value::Object(overlay)) => merge_object(base, overlay),
        (base, overlay) => match key_of(field) {
            Some((key, deep)) => merge_list(field, base, overlay, key, deep),
            None => {
                *base = overlay.clone();
                Ok(())
            }
        },
    }
}

fn merge_object(base: &mut Map<String, Value>, overlay: &Map<String, Value>) -> Result<(), RenderError> {
    if HANDLERS.iter().any(|handler| overlay.get(*handler).is_some_and(Value::is_object)) {
        base.retain(|field, _| overlay.contains_key(field) || !HANDLERS.contains(&field.as_str()));
    }
    for (field, value) in overlay {
        match base.get_mut(field) {
            _ if value.is_null() => {
                base.remove(field);
            }
            Some(base) => merge_value(field, base, value)?,
            None => {
                base.insert(field.clone(), value.clone());
            }
        }
    }
    Ok(())
}

fn merge_list(field: &str, base: &mut Value, overlay: &Value, key: &str, deep: bool) -> Result<(), RenderError> {
    let (Value::Array(base), Value::Array(overlay)) = (base, overlay) else {
        return Err(RenderError::PodTemplate(format!("{field} must be a list")));
    };
    for element in overlay {
        let Some(name) = element.get(key).and_then(Value::as_str) else {
            return Err(RenderError::PodTemplate(format!("an element of {field} has no {key}: give it one")));
        };
        match base.iter_mut().find(|known| known[key] == name) {
            Some(known) if deep => merge_value(field, known, element)?,
            Some(known) => *known = element.clone(),
            None => base.push(element.clone()),
        }
    }
    Ok(())
}
