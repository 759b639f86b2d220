//! Renders the Pod template of a workload: its container under the restricted Pod Security profile, then the user's overlay.

use k8s_openapi::api::core::v1::LocalObjectReference;
use serde_json::{Value, json};

use super::{
    RenderError,
    container::pull_policy,
    labels::{child_labels, selector_labels},
    overlay, sidecar,
    workload_parts::WorkloadParts,
};

/// Returns the Pod template, with the overlay merged in.
///
/// `json!` copies a [`Value`] with all its content, so large values are put into their place afterwards.
pub(super) fn template(running: &WorkloadParts<'_>) -> Result<Value, RenderError> {
    let mut pod = json!({
        "serviceAccountName": running.service_account(),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": sidecar::grace(running.sidecar.as_ref()),
        // With runAsNonRoot the kubelet rejects an image whose user is a name, unless a numeric user is set.
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
            "labelSelector": { "matchLabels": selector_labels(running.label, &running.name) },
        }],
    });
    pod["containers"] = Value::Array(vec![container(running)]);
    let sidecar = running.sidecar.as_ref().map(|sidecar| sidecar.container(running.container.port));
    let first: Vec<_> = running.init_containers.iter().cloned().chain(sidecar).collect();
    if !first.is_empty() {
        pod["initContainers"] = Value::Array(first);
    }
    let tmp = json!({ "name": "tmp", "emptyDir": {} });
    let volumes = running.container.volumes.iter().map(|(volume, _)| volume.clone());
    pod["volumes"] = [tmp].into_iter().chain(volumes).collect();
    if !running.image_pull_secrets.is_empty() {
        pod["imagePullSecrets"] = image_pull_secrets(running.image_pull_secrets);
    }
    let (annotation, hash) = running.hash;
    let mut annotations = json!({ annotation: hash });
    if let Some(at) = running.rollout_at {
        annotations[crds::ROLLOUT_AT] = json!(at);
    }
    let mut template = json!({ "metadata": { "labels": child_labels(running.label, &running.name) } });
    template["metadata"]["annotations"] = annotations;
    template["spec"] = pod;
    if let Some(overlay) = running.pod_template {
        template = overlay::merge(template, overlay, running)?;
    }
    if let Some(sidecar) = &running.sidecar {
        sidecar.learn_readiness(&mut template, running.kind, running.container.probes);
    }
    Ok(template)
}

/// Returns the secrets without duplicates: the API server treats the list as a map by name and rejects a second entry.
fn image_pull_secrets(secrets: &[LocalObjectReference]) -> Value {
    let mut names: Vec<&str> = Vec::new();
    for secret in secrets {
        if !names.contains(&secret.name.as_str()) {
            names.push(&secret.name);
        }
    }
    names.into_iter().map(|name| json!({ "name": name })).collect()
}

fn container(running: &WorkloadParts<'_>) -> Value {
    let container = &running.container;
    let port = sidecar::port_name(running.sidecar.as_ref());
    let mut mounts = vec![json!({ "name": "tmp", "mountPath": "/tmp" })];
    let contents = container.volumes.iter();
    mounts
        .extend(contents.map(|(volume, path)| json!({ "name": volume["name"], "mountPath": path, "readOnly": true })));
    let mut ports = vec![json!({ "name": port, "containerPort": container.port })];
    ports.extend(running.sidecar.as_ref().and_then(sidecar::Sidecar::port));
    let mut rendered = json!({
        "name": running.kind,
        "image": container.image,
        "imagePullPolicy": container.pull_policy.unwrap_or(pull_policy(container.image)),
        "ports": ports,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
        },
    });
    rendered["startupProbe"] = container.probes.startup(port);
    rendered["livenessProbe"] = container.probes.liveness(port);
    rendered["readinessProbe"] = container.probes.readiness(port);
    rendered["volumeMounts"] = Value::Array(mounts);
    if let Some(sidecar) = &running.sidecar {
        rendered["lifecycle"]["preStop"] = sidecar.drain();
    }
    if !container.command.is_empty() {
        rendered["command"] = json!(container.command);
    }
    if !container.args.is_empty() {
        rendered["args"] = json!(container.args);
    }
    if !container.env_from.is_empty() {
        rendered["envFrom"] = Value::Array(container.env_from.clone());
    }
    let variable = running.sidecar.as_ref().and_then(|sidecar| sidecar.variable(&container.env));
    if variable.is_some() || !container.env.is_empty() {
        rendered["env"] = container.env.iter().cloned().chain(variable).collect();
    }
    if !container.resources.is_null() {
        rendered["resources"] = container.resources.clone();
    }
    rendered
}
