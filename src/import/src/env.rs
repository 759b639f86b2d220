//! Environment variables of containers, and what else Pods take from a spec as it is.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements};
use serde_json::{Map, Value, json};

use crate::{fields::Fields, subject::Subject};

/// Most Pods of a workload that is not scaled, and the fewest of one that is.
pub(crate) const MOST_FIXED: i64 = 10;
/// Most Pods of a workload that is scaled.
pub(crate) const MOST_SCALED: i64 = 100;

/// Returns the variables of a list as a Pod takes them, each name once, without those that the operator sets. `from_model`
/// are those that it sets from the Secret of the model, by its `credentialKeys`.
pub(crate) fn variables(
    subject: &Subject<'_>,
    fields: &Fields<'_>,
    key: &str,
    kind: &str,
    port: Option<i64>,
    from_model: &[String],
) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for (index, variable) in fields.items(key).iter().enumerate() {
        let path = format!("{}[{index}]", fields.path(key));
        let Some(read) = serde_json::from_value::<EnvVar>(variable.clone()).ok().filter(|read| !read.name.is_empty())
        else {
            subject.notes.skip(&path, "is no variable");
            continue;
        };
        let name = &read.name;
        if is_set_by_operator(kind, name) || from_model.contains(name) {
            let is_port = name == "PORT" && port.is_some_and(|port| read.value == Some(port.to_string()));
            if !is_port {
                subject.notes.loss(&format!("{}[{name}]", fields.path(key)), "the operator sets this variable");
            }
            continue;
        }
        tell_missing(subject, &path, &read);
        // In a Pod the last one of a name counts.
        if let Some(before) = kept.iter_mut().find(|known| known["name"] == *name) {
            subject.notes.change(&format!("{}[{name}]", fields.path(key)), "is there twice: the last one counts");
            *before = variable.clone();
        } else {
            kept.push(variable.clone());
        }
    }
    kept
}

fn tell_missing(subject: &Subject<'_>, path: &str, variable: &EnvVar) {
    let Some(from) = &variable.value_from else { return };
    if let Some(secret) = from.secret_key_ref.as_ref().filter(|secret| secret.optional != Some(true)) {
        subject.needs(path, "Secret", &secret.name);
    }
    if let Some(map) = from.config_map_key_ref.as_ref().filter(|map| map.optional != Some(true)) {
        subject.needs(path, "ConfigMap", &map.name);
    }
}

/// Reports that a provider of models is none that our runtime speaks.
pub(crate) fn tell_provider(subject: &Subject<'_>, field: &str, type_: &str) {
    if crds::provider::provider(type_).is_none() {
        subject.notes.loss(field, format!("Récif's runtime does not speak {type_} yet"));
    }
}

/// Reports whether the operator sets a variable in the container of a kind.
fn is_set_by_operator(kind: &str, name: &str) -> bool {
    match kind {
        "Agent" => matches!(
            name,
            "CORAIL_AGENT_CARD"
                | "CORAIL_AGENT_NAME"
                | "CORAIL_BACKGROUND_MODEL"
                | "CORAIL_CHANNEL"
                | "CORAIL_DATABASE_URL"
                | "CORAIL_KNOWLEDGE_BASES"
                | "CORAIL_MODEL_BASE_URL"
                | "CORAIL_MODEL_CONFIG"
                | "CORAIL_MODEL_CREDENTIAL_KEYS"
                | "CORAIL_MODEL_EXTRA_CONFIG"
                | "CORAIL_MODEL_FALLBACKS"
                | "CORAIL_MODEL_HEADERS"
                | "CORAIL_MODEL_ID"
                | "CORAIL_MODEL_PASSTHROUGH"
                | "CORAIL_MODEL_REGION"
                | "CORAIL_MODEL_TIMEOUT"
                | "CORAIL_MODEL_TLS"
                | "CORAIL_MODEL_TYPE"
                | "CORAIL_PORT"
                | "CORAIL_STORAGE"
                | "CORAIL_STRATEGY"
                | "CORAIL_SYSTEM_PROMPT"
                | "CORAIL_TOOLS"
                | "CORAIL_TOOLS_FILE"
                | "OLLAMA_BASE_URL"
        ),
        "Flow" | "FlowSet" => matches!(name, "PORT" | "RECIF_CONTRACT_VERSION" | "RECIF_FLOW_NAME"),
        _ => false,
    }
}

/// Copies the sources of variables.
pub(crate) fn sources(subject: &Subject<'_>, fields: &Fields<'_>, key: &str) -> Option<Value> {
    let value = fields.typed::<Vec<EnvFromSource>>(key, "list of sources of variables")?;
    let sources: Vec<EnvFromSource> = serde_json::from_value(value.clone()).unwrap_or_default();
    for (index, source) in sources.iter().enumerate() {
        let path = format!("{}[{index}]", fields.path(key));
        if let Some(secret) = source.secret_ref.as_ref().filter(|secret| secret.optional != Some(true)) {
            subject.needs(&path, "Secret", &secret.name);
        }
        if let Some(map) = source.config_map_ref.as_ref().filter(|map| map.optional != Some(true)) {
            subject.needs(&path, "ConfigMap", &map.name);
        }
    }
    Some(value)
}

/// Copies `resources`.
pub(crate) fn resources(fields: &Fields<'_>) -> Option<Value> {
    fields.typed::<ResourceRequirements>("resources", "resources of a container")
}

/// Copies `imagePullSecrets`.
pub(crate) fn pull_secrets(subject: &Subject<'_>, fields: &Fields<'_>) -> Option<Value> {
    let value = fields.typed::<Vec<LocalObjectReference>>("imagePullSecrets", "list of names")?;
    let path = fields.path("imagePullSecrets");
    let mut seen: Vec<&Value> = Vec::new();
    for secret in value.as_array().into_iter().flatten() {
        if let Some(name) = secret["name"].as_str().filter(|_| !seen.contains(&secret)) {
            subject.needs(&path, "Secret", name);
            seen.push(secret);
        }
    }
    Some(json!(seen))
}

/// Copies `imagePullPolicy`.
pub(crate) fn pull_policy(subject: &Subject<'_>, fields: &Fields<'_>) -> Option<Value> {
    let policy = fields.text("imagePullPolicy")?;
    if matches!(policy, "Always" | "IfNotPresent" | "Never") {
        return Some(policy.into());
    }
    subject.notes.skip(&fields.path("imagePullPolicy"), "is no pull policy");
    None
}

/// Returns a number of Pods, at most `most`.
pub(crate) fn replicas(subject: &Subject<'_>, fields: &Fields<'_>, key: &str, most: i64) -> Option<i64> {
    let number = fields.int(key)?;
    if number > most {
        subject.notes.loss(&fields.path(key), format!("at most {most} Pods"));
    }
    Some(number.clamp(0, most))
}

/// Sets the number of Pods of a workload that can be scaled.
pub(crate) fn set_replicas(subject: &Subject<'_>, fields: &Fields<'_>, ours: &mut Map<String, Value>) {
    let Some(number) = fields.int("replicas") else { return };
    match number {
        0..=MOST_FIXED => set(ours, "replicas", Some(number)),
        ..0 => set(ours, "replicas", Some(0)),
        _ => scale(subject, &fields.path("replicas"), number, ours),
    }
}

/// Lets the load decide on the Pods that are more than `replicas` takes.
pub(crate) fn scale(subject: &Subject<'_>, field: &str, number: i64, ours: &mut Map<String, Value>) {
    let most = number.min(MOST_SCALED);
    let text = format!("at most {MOST_FIXED} Pods without load; scaling adds those up to {most}, for 8 requests each");
    subject.notes.loss(field, text);
    ours.remove("replicas");
    ours.insert("scaling".to_owned(), json!({ "minReplicas": MOST_FIXED, "maxReplicas": most }));
}

/// Returns a port; one that is none is left out.
pub(crate) fn port(subject: &Subject<'_>, fields: &Fields<'_>, key: &str) -> Option<i64> {
    let number = fields.int(key)?;
    if (1..=65535).contains(&number) {
        return Some(number);
    }
    subject.notes.skip(&fields.path(key), "is no port");
    None
}

/// Sets a field if there is a value.
pub(crate) fn set(map: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a list if it is not empty.
pub(crate) fn set_list(map: &mut Map<String, Value>, key: &str, items: Vec<Value>) {
    if !items.is_empty() {
        map.insert(key.to_owned(), items.into());
    }
}
