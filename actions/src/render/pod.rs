//! The Pod template of an agent: its container under the restricted Pod Security profile, then the user's overlay.

use crds::Agent;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{
    Config, RenderError,
    env::{config_name, told_port},
    labels::{AGENT_LABEL, child_labels, selector_labels},
    overlay,
};

/// The annotation of the Pod template that holds the content hash: a new value rolls the Pods.
pub const CONFIG_HASH: &str = "recif.dev/config-hash";

/// The container that runs the agent.
pub(super) const CONTAINER: &str = "agent";

/// The Pod template, with `spec.podTemplate` merged in.
pub(super) fn template(agent: &Agent, config: &Config) -> Result<Value, RenderError> {
    let name = agent.name_any();
    let spec = &agent.spec;
    let mut pod = json!({
        "serviceAccountName": own_service_account(agent).or_else(|| spec.service_account_name.clone()),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        // The runtime drains for 25 s after SIGTERM.
        "terminationGracePeriodSeconds": 30,
        // An image that names its user by a word is refused by the kubelet under runAsNonRoot unless a number is given.
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": selector_labels(AGENT_LABEL, &name) },
        }],
        "containers": [container(agent, config)],
        "volumes": [{ "name": "tmp", "emptyDir": {} }],
    });
    if !spec.image_pull_secrets.is_empty() {
        pod["imagePullSecrets"] = image_pull_secrets(agent);
    }
    let template = json!({
        "metadata": {
            "labels": child_labels(AGENT_LABEL, &name),
            "annotations": { CONFIG_HASH: config.content_hash },
        },
        "spec": pod,
    });
    match &spec.pod_template {
        Some(overlay) => overlay::merge(template, overlay, agent, config),
        None => Ok(template),
    }
}

/// Name of the ServiceAccount that we make, when the spec names none.
pub(super) fn own_service_account(agent: &Agent) -> Option<String> {
    agent.spec.service_account_name.as_deref().unwrap_or_default().is_empty().then(|| agent.name_any())
}

/// Each once: the API server takes the list as a map by name and refuses a second one.
fn image_pull_secrets(agent: &Agent) -> Value {
    let mut names: Vec<&str> = Vec::new();
    for secret in &agent.spec.image_pull_secrets {
        if !names.contains(&secret.name.as_str()) {
            names.push(&secret.name);
        }
    }
    names.into_iter().map(|name| json!({ "name": name })).collect()
}

fn container(agent: &Agent, config: &Config) -> Value {
    let spec = &agent.spec;
    let mut container = json!({
        "name": CONTAINER,
        "image": spec.image,
        // Without a registry the image was loaded into the node; nowhere could it be pulled from.
        "imagePullPolicy": if spec.image.contains('/') { "IfNotPresent" } else { "Never" },
        "ports": [{ "name": "http", "containerPort": spec.port }],
        "envFrom": env_from(agent, config),
        "startupProbe": probe(json!({ "periodSeconds": 1, "failureThreshold": 360 })),
        "livenessProbe": probe(json!({ "initialDelaySeconds": 5, "periodSeconds": 10 })),
        "readinessProbe": probe(json!({ "initialDelaySeconds": 3, "periodSeconds": 5 })),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
        },
        "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }],
    });
    let port = told_port(agent).map(|port| json!({ "name": "CORAIL_PORT", "value": port.to_string() }));
    let env: Vec<_> = port.into_iter().chain(spec.env.iter().map(|variable| json!(variable))).collect();
    if !env.is_empty() {
        container["env"] = Value::Array(env);
    }
    if let Some(resources) = &spec.resources {
        container["resources"] = json!(resources);
    }
    container
}

/// The user's sources before ours: of two sources of one variable the later one wins.
fn env_from(agent: &Agent, config: &Config) -> Value {
    let name = config_name(agent);
    let mut sources: Vec<_> = agent.spec.env_from.iter().map(|source| json!(source)).collect();
    sources.push(json!({ "configMapRef": { "name": name } }));
    if !config.secret.is_empty() {
        sources.push(json!({ "secretRef": { "name": name } }));
    }
    Value::Array(sources)
}

fn probe(timing: Value) -> Value {
    let mut probe = Map::new();
    probe.insert("httpGet".to_owned(), json!({ "path": "/healthz", "port": "http" }));
    if let Value::Object(timing) = timing {
        probe.extend(timing);
    }
    Value::Object(probe)
}
