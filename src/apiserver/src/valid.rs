//! Rules on metadata, and on what a Pod template can get wrong, in the API server's words.

use serde_json::Value;

use crate::{
    errors::{DUPLICATE, FORBIDDEN, INVALID, NOT_FOUND, NOT_SUPPORTED, REQUIRED, Violation},
    kinds::Kind,
    object::{finalizers, is_deleting, items, text},
};

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn error(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Violation {
    Violation { reason, field: field.into(), message: message.into() }
}

fn invalid(field: impl Into<String>, value: &str, why: &str) -> Violation {
    error(INVALID, field, format!("Invalid value: {value:?}: {why}"))
}

fn required(field: impl Into<String>, why: &str) -> Violation {
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    error(REQUIRED, field, format!("Required value{why}"))
}

/// Reports whether a text is a DNS label of RFC 1123, without limit of its length.
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Reports whether a text is the name part of a label's key, or the value of a label.
fn is_name_part(text: &str) -> bool {
    let is_outer = |c: char| c.is_ascii_alphanumeric();
    text.chars().all(|c| is_outer(c) || "-_.".contains(c)) && text.starts_with(is_outer) && text.ends_with(is_outer)
}

/// Returns what is wrong with the name of an object.
fn name(kind: &Kind, name: &str) -> Vec<Violation> {
    const FIELD: &str = "metadata.name";
    let (max, is_valid, rule) = match kind.name {
        "Service" => (63, is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()), LABEL_1035),
        "Namespace" => (63, is_label(name), LABEL_1123),
        _ => (253, name.split('.').all(is_label), SUBDOMAIN),
    };
    if name.is_empty() {
        return vec![required(FIELD, "name or generateName is required")];
    }
    let too_long = (name.len() > max).then(|| invalid(FIELD, name, &format!("must be no more than {max} characters")));
    too_long.into_iter().chain((!is_valid).then(|| invalid(FIELD, name, rule))).collect()
}

/// Returns what is wrong with the metadata of an object.
pub(crate) fn metadata(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<Violation> {
    let mut errors = match old {
        None => name(kind, text(object, "/metadata/name")),
        Some(_) => Vec::new(),
    };
    for (key, value) in object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        errors.extend(key_error("metadata.labels", key));
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            errors.push(invalid("metadata.labels", value, "must be no more than 63 bytes"));
        }
        if !value.is_empty() && !is_name_part(value) {
            errors.push(invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    for (key, _) in object.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten() {
        errors.extend(key_error("metadata.annotations", &key.to_lowercase()));
    }
    for reference in items(object, "/metadata/ownerReferences") {
        for part in ["apiVersion", "kind", "name", "uid"] {
            if text(reference, &format!("/{part}")).is_empty() {
                let value = "Invalid value: \"\": must not be empty";
                errors.push(error(INVALID, format!("metadata.ownerReferences.{part}"), value));
            }
        }
    }
    if let Some(old) = old.filter(|old| is_deleting(old)) {
        let added: Vec<_> = finalizers(object).filter(|name| !finalizers(old).any(|other| other == *name)).collect();
        if !added.is_empty() {
            let quoted: Vec<_> = added.iter().map(|name| format!("{name:?}")).collect();
            let message = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                quoted.join(", ")
            );
            errors.push(error(FORBIDDEN, "metadata.finalizers", message));
        }
    }
    errors
}

/// Returns what is wrong with the key of a label or annotation.
fn key_error(field: &str, key: &str) -> Option<Violation> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if let Some(prefix) = prefix.filter(|prefix| !prefix.split('.').all(is_label)) {
        let why = if prefix.is_empty() {
            "prefix part must be non-empty".to_owned()
        } else {
            format!("prefix part {SUBDOMAIN}")
        };
        return Some(invalid(field, key, &why));
    }
    if name.is_empty() {
        return Some(invalid(field, key, "name part must be non-empty"));
    }
    if name.len() > 63 {
        return Some(invalid(field, key, "name part must be no more than 63 bytes"));
    }
    (!is_name_part(name)).then(|| invalid(field, key, QUALIFIED_NAME))
}

/// Returns what is wrong with an object of a built-in kind, beyond types.
pub(crate) fn built_in(kind: &str, object: &Value, old: Option<&Value>) -> Vec<Violation> {
    let immutable = |field: &str| error(FORBIDDEN, field, "Forbidden: field is immutable when `immutable` is set");
    match kind {
        "Deployment" => deployment(object, old),
        "Pod" => pod(object, "/spec", "spec"),
        "ConfigMap" | "Secret" => {
            let fixed = old.filter(|old| old["immutable"] == Value::Bool(true));
            let changed = |field: &&str| fixed.is_some_and(|old| old.get(field) != object.get(field));
            let errors = ["immutable", "data", "binaryData"].into_iter().filter(changed).map(immutable);
            let other_type = old.is_some_and(|old| old.get("type") != object.get("type"));
            let of_type = other_type
                .then(|| error(INVALID, "type", format!("Invalid value: {}: field is immutable", object["type"])));
            of_type.into_iter().chain(errors).collect()
        }
        "Service" => service(object),
        _ => Vec::new(),
    }
}

fn deployment(object: &Value, old: Option<&Value>) -> Vec<Violation> {
    let selector = object.pointer("/spec/selector");
    let mut errors = Vec::new();
    if object.pointer("/spec/replicas").and_then(Value::as_i64).is_some_and(|replicas| replicas < 0) {
        let message = format!("Invalid value: {}: must be greater than or equal to 0", object["spec"]["replicas"]);
        errors.push(error(INVALID, "spec.replicas", message));
    }
    let labels = selector.and_then(|selector| selector["matchLabels"].as_object()).into_iter().flatten();
    let template = object.pointer("/spec/template/metadata/labels");
    if selector.is_none_or(|selector| selector.as_object().is_none_or(serde_json::Map::is_empty)) {
        errors.push(required("spec.selector", ""));
    } else if !labels.clone().all(|(key, value)| template.and_then(|labels| labels.get(key)) == Some(value)) {
        let shown = template.cloned().unwrap_or_else(|| serde_json::json!({}));
        let message = format!("Invalid value: {shown}: `selector` does not match template `labels`");
        errors.push(error(INVALID, "spec.template.metadata.labels", message));
    }
    errors.extend(pod(object, "/spec/template/spec", "spec.template.spec"));
    errors.extend(restart_policy(object, "/spec/template/spec", "spec.template.spec", &["Always"]));
    if old.is_some_and(|old| old.pointer("/spec/selector") != selector) {
        let shown = selector.cloned().unwrap_or_default();
        errors.push(error(INVALID, "spec.selector", format!("Invalid value: {shown}: field is immutable")));
    }
    errors
}

/// Returns what is wrong with the spec of a Pod.
fn pod(object: &Value, pointer: &str, path: &str) -> Vec<Violation> {
    let mut errors = Vec::new();
    let volumes = items(object, &format!("{pointer}/volumes"));
    let mut names: Vec<&str> = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        errors.extend(name_error(&format!("{path}.volumes[{index}].name"), text(volume, "/name"), &mut names));
    }
    if items(object, &format!("{pointer}/containers")).is_empty() {
        errors.push(required(format!("{path}.containers"), ""));
    }
    let mut containers: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in items(object, &format!("{pointer}/{list}")).iter().enumerate() {
            let path = format!("{path}.{list}[{index}]");
            errors.extend(name_error(&format!("{path}.name"), text(container, "/name"), &mut containers));
            if text(container, "/image").is_empty() {
                errors.push(required(format!("{path}.image"), ""));
            }
            for (index, mount) in items(container, "/volumeMounts").iter().enumerate() {
                let name = text(mount, "/name");
                if !names.contains(&name) {
                    let field = format!("{path}.volumeMounts[{index}].name");
                    errors.push(error(NOT_FOUND, field, format!("Not found: {name:?}")));
                }
            }
            for (index, port) in items(container, "/ports").iter().enumerate() {
                let number = port["containerPort"].as_i64().unwrap_or_default();
                if !(1..=65535).contains(&number) {
                    let message = format!("Invalid value: {number}: must be between 1 and 65535, inclusive");
                    errors.push(error(INVALID, format!("{path}.ports[{index}].containerPort"), message));
                }
            }
        }
    }
    errors.extend(restart_policy(object, pointer, path, &["Always", "OnFailure", "Never"]));
    errors
}

/// Checks when the containers of a Pod are restarted.
fn restart_policy(object: &Value, pointer: &str, path: &str, supported: &[&str]) -> Option<Violation> {
    let policy = text(object, &format!("{pointer}/restartPolicy"));
    if policy.is_empty() || supported.contains(&policy) {
        return None;
    }
    let supported = supported.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
    let message = format!("Unsupported value: {policy:?}: supported values: {supported}");
    Some(error(NOT_SUPPORTED, format!("{path}.restartPolicy"), message))
}

/// Checks the name of a container or volume, which must be a label and differ from the others.
fn name_error<'a>(field: &str, name: &'a str, others: &mut Vec<&'a str>) -> Option<Violation> {
    let is_twice = others.contains(&name);
    others.push(name);
    if name.is_empty() {
        Some(required(field, ""))
    } else if !is_label(name) {
        Some(invalid(field, name, LABEL_1123))
    } else {
        is_twice.then(|| error(DUPLICATE, field, format!("Duplicate value: {name:?}")))
    }
}

fn service(object: &Value) -> Vec<Violation> {
    let is_external = text(object, "/spec/type") == "ExternalName";
    let is_headless = text(object, "/spec/clusterIP") == "None";
    let ports = items(object, "/spec/ports");
    let mut errors = Vec::new();
    if ports.is_empty() && !is_external && !is_headless {
        errors.push(required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        if ports.len() > 1 && text(port, "/name").is_empty() {
            errors.push(required(format!("spec.ports[{index}].name"), ""));
        }
        let number = port["port"].as_i64().unwrap_or_default();
        if !(1..=65535).contains(&number) {
            let message = format!("Invalid value: {number}: must be between 1 and 65535, inclusive");
            errors.push(error(INVALID, format!("spec.ports[{index}].port"), message));
        }
    }
    errors
}
