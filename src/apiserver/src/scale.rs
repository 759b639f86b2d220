//! The subresource `scale`: the replicas of an object as `autoscaling/v1`.

use serde_json::{Value, json};

use crate::{errors::StatusError, kinds::Kind};

/// Returns the scale of an object.
///
/// # Errors
/// 405 for a kind without.
pub(crate) fn of(kind: &Kind, object: &Value) -> Result<Value, StatusError> {
    let paths = kind.scale().ok_or_else(StatusError::method_not_allowed)?;
    let replicas = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_else(|| 0.into());
    let metadata = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), object["metadata"].get(field)?.clone())));
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": metadata.collect::<serde_json::Map<_, _>>(),
        "spec": {}, "status": { "replicas": replicas(&paths.status) },
    });
    // Go leaves out a zero here, but not in the status.
    let wanted = replicas(&paths.spec);
    if wanted != 0 {
        scale["spec"]["replicas"] = wanted;
    }
    if let Some(selector) = object.pointer(&paths.selector).and_then(selector_text) {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}

/// Returns a selector as text; a LabelSelector is written as one.
pub(crate) fn selector_text(selector: &Value) -> Option<String> {
    if let Some(text) = selector.as_str() {
        return Some(text.to_owned());
    }
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten().filter_map(|expression| {
        let key = expression["key"].as_str()?;
        let values: Vec<_> = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match expression["operator"].as_str()? {
            "In" => Some(format!("{key} in ({})", values.join(","))),
            "NotIn" => Some(format!("{key} notin ({})", values.join(","))),
            "Exists" => Some(key.to_owned()),
            _ => Some(format!("!{key}")),
        }
    });
    Some(labels.chain(expressions).collect::<Vec<_>>().join(","))
}
