//! The variables of a container, as the kubelet makes them: `envFrom`, then `env` with `$(VAR)` and values from other objects. Pure: the
//! objects are read before.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, ObjectFieldSelector, Pod};

use crate::{config::NODE_NAME, config_error::ConfigError, objects::Objects};

/// Kinds of objects in messages.
pub(crate) const SECRET: &str = "secret";
pub(crate) const CONFIG_MAP: &str = "configmap";

/// Returns the variables that the Pod gives a container, by name.
///
/// # Errors
/// [`ConfigError`]: an object or key that is missing and not optional.
pub(crate) fn variables(
    pod: &Pod,
    container: &Container,
    objects: &Objects,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut all = BTreeMap::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let (kind, name, optional, data) = match (&source.config_map_ref, &source.secret_ref) {
            (Some(map), _) => (CONFIG_MAP, &map.name, map.optional, objects.config_map(&map.name)),
            (None, Some(secret)) => (SECRET, &secret.name, secret.optional, objects.secret(&secret.name)),
            (None, None) => continue,
        };
        match data {
            // A value that is no text is left out, as a name that is no variable's.
            Some(data) => all.extend(data.iter().filter_map(|(key, value)| {
                let is_name = !key.contains('=') && !key.contains('\0');
                let value = std::str::from_utf8(value).ok().filter(|_| is_name)?;
                Some((format!("{prefix}{key}"), value.to_owned()))
            })),
            None if optional == Some(true) => {}
            None => return Err(ConfigError::Missing { kind, name: name.clone() }),
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(pod, variable, objects, &all)? {
            all.insert(variable.name.clone(), value);
        }
    }
    Ok(all)
}

/// Returns the value of a variable; none if its source is optional and missing.
fn value(
    pod: &Pod,
    variable: &EnvVar,
    objects: &Objects,
    known: &BTreeMap<String, String>,
) -> Result<Option<String>, ConfigError> {
    let Some(from) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), known)));
    };
    if let Some(field) = &from.field_ref {
        return self::field(pod, field).map(Some);
    }
    let (kind, name, key, optional, data) = match (&from.config_map_key_ref, &from.secret_key_ref) {
        (Some(map), _) => ("ConfigMap", &map.name, &map.key, map.optional, objects.config_map(&map.name)),
        (None, Some(secret)) => ("Secret", &secret.name, &secret.key, secret.optional, objects.secret(&secret.name)),
        // Limits do not exist here, so there is nothing to say of resources.
        (None, None) => return Ok(None),
    };
    let Some(data) = data else {
        let kind = if kind == "Secret" { SECRET } else { CONFIG_MAP };
        return match optional {
            Some(true) => Ok(None),
            _ => Err(ConfigError::Missing { kind, name: name.clone() }),
        };
    };
    match data.get(key).map(|value| std::str::from_utf8(value)) {
        Some(Ok(value)) => Ok(Some(value.to_owned())),
        Some(Err(_)) => Err(ConfigError::NoText { key: key.clone(), kind, name: name.clone() }),
        None if optional == Some(true) => Ok(None),
        None => {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            Err(ConfigError::Key { key: key.clone(), kind, namespace, name: name.clone() })
        }
    }
}

/// Returns a field of a Pod.
///
/// # Errors
/// [`ConfigError::Field`]: it is not known.
pub(crate) fn field(pod: &Pod, selector: &ObjectFieldSelector) -> Result<String, ConfigError> {
    let path = selector.field_path.as_str();
    let metadata = &pod.metadata;
    let of_map = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key).cloned()).unwrap_or_default()
    };
    let lines = |map: &Option<BTreeMap<String, String>>| {
        map.iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
    };
    let quoted = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
    let text = match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.labels" => Some(lines(&metadata.labels)),
        "metadata.annotations" => Some(lines(&metadata.annotations)),
        "spec.nodeName" => Some(NODE_NAME.to_owned()),
        "spec.serviceAccountName" => {
            pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).or(Some("default".to_owned()))
        }
        "status.podIP" | "status.hostIP" | "status.podIPs" | "status.hostIPs" => Some("127.0.0.1".to_owned()),
        _ => match (quoted("metadata.labels"), quoted("metadata.annotations")) {
            (Some(key), _) => Some(of_map(&metadata.labels, key)),
            (None, Some(key)) => Some(of_map(&metadata.annotations, key)),
            (None, None) => return Err(ConfigError::Field(path.to_owned())),
        },
    };
    Ok(text.unwrap_or_default())
}

/// Replaces each `$(VAR)` of a known variable; `$$` stands for `$`. What refers to no variable stays.
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut new = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        new.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match (after.chars().next(), name) {
            (Some('('), Some((name, behind))) => {
                match variables.get(name) {
                    Some(value) => new.push_str(value),
                    None => new.extend(["$(", name, ")"]),
                }
                rest = behind;
            }
            (Some('$'), _) => {
                new.push('$');
                rest = &after[1..];
            }
            _ => {
                new.push('$');
                rest = after;
            }
        }
    }
    new.push_str(rest);
    new
}

#[cfg(test)]
mod tests;
