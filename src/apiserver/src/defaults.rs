//! Defaults of the built-in kinds, as the API server fills them in.

use serde_json::{Map, Value, json};

use crate::object::{field, fields, text};

/// Fills in what the manifest leaves out.
pub(crate) fn fill(kind: &str, object: &mut Value) {
    match kind {
        "Deployment" => deployment(object),
        "EndpointSlice" => endpoint_slice(object),
        "Pod" => {
            default(object, json!({ "status": {} }));
            default(field(object, "status"), json!({ "phase": "Pending" }));
            pod(field(object, "spec"));
            pod_alone(field(object, "spec"));
        }
        "PodDisruptionBudget" => pod_disruption_budget(object),
        "Service" => service(object),
        "Secret" => secret(object),
        "Namespace" => namespace(object),
        _ => {}
    }
    // Go leaves out empty maps and lists that these types have.
    let optional: &[&str] = &["labels", "annotations", "ownerReferences", "finalizers"];
    fields(field(object, "metadata")).retain(|name, value| !optional.contains(&name.as_str()) || !is_empty(value));
    fields(object).retain(|name, value| !matches!(name.as_str(), "data" | "binaryData") || !is_empty(value));
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Sets fields that are not set.
fn default(object: &mut Value, defaults: Value) {
    let Value::Object(defaults) = defaults else { return };
    let fields = fields(object);
    for (name, value) in defaults {
        let found = fields.entry(name).or_insert(Value::Null);
        if found.is_null() {
            *found = value;
        }
    }
}

/// Calls a function with each item of a list.
fn each(object: &mut Value, list: &str, change: impl FnMut(&mut Value)) {
    object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
}

fn deployment(object: &mut Value) {
    default(object, json!({ "status": {} }));
    let spec = field(object, "spec");
    default(spec, json!({ "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "strategy": {} }));
    let strategy = field(spec, "strategy");
    default(strategy, json!({ "type": "RollingUpdate" }));
    if text(strategy, "/type") == "RollingUpdate" {
        default(strategy, json!({ "rollingUpdate": {} }));
        default(field(strategy, "rollingUpdate"), json!({ "maxSurge": "25%", "maxUnavailable": "25%" }));
    }
    let template = field(spec, "template");
    default(template, json!({ "metadata": {} }));
    pod(field(template, "spec"));
}

fn pod(spec: &mut Value) {
    let common = json!({
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "securityContext": {}, "schedulerName": "default-scheduler",
    });
    default(spec, common);
    // The old name of the field is always there, too.
    if let Some(account) = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned() {
        default(spec, json!({ "serviceAccountName": account, "serviceAccount": account }));
    }
    for list in ["containers", "initContainers"] {
        each(spec, list, container);
    }
    each(spec, "volumes", volume);
}

/// Fills in what only a Pod gets, and no template of one: service links, the ports of the host, and requests from limits.
fn pod_alone(spec: &mut Value) {
    default(spec, json!({ "enableServiceLinks": true }));
    let has_host_network = spec["hostNetwork"] == Value::Bool(true);
    for list in ["containers", "initContainers"] {
        each(spec, list, |container| {
            if has_host_network {
                each(container, "ports", |port| {
                    let number = port["containerPort"].clone();
                    default(port, json!({ "hostPort": number }));
                });
            }
            if let Some(limits) = container.pointer("/resources/limits").cloned() {
                let resources = field(container, "resources");
                default(resources, json!({ "requests": {} }));
                default(field(resources, "requests"), limits);
            }
        });
    }
}

fn container(container: &mut Value) {
    let image = text(container, "/image");
    let name = image.rsplit('/').next().unwrap_or_default();
    let is_latest = !image.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
    let policy = if is_latest { "Always" } else { "IfNotPresent" };
    default(
        container,
        json!({
            "imagePullPolicy": policy, "resources": {}, "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }),
    );
    each(container, "ports", |port| default(port, json!({ "protocol": "TCP" })));
    each(container, "env", |variable| {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            default(field, json!({ "apiVersion": "v1" }));
        }
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        default(
            probe,
            json!({ "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 }),
        );
        if let Some(get) = probe.get_mut("httpGet") {
            default(get, json!({ "path": "/", "scheme": "HTTP" }));
        }
        if let Some(grpc) = probe.get_mut("grpc") {
            default(grpc, json!({ "service": "" }));
        }
    }
    for hook in ["/lifecycle/preStop/httpGet", "/lifecycle/postStart/httpGet"] {
        if let Some(get) = container.pointer_mut(hook) {
            default(get, json!({ "path": "/", "scheme": "HTTP" }));
        }
    }
}

fn volume(volume: &mut Value) {
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source) {
            default(source, json!({ "defaultMode": 0o644 }));
        }
    }
    let Some(projected) = volume.get_mut("projected") else { return };
    each(projected, "sources", |source| {
        if let Some(token) = source.get_mut("serviceAccountToken") {
            default(token, json!({ "expirationSeconds": 3600 }));
        }
    });
}

fn service(object: &mut Value) {
    default(object, json!({ "status": {} }));
    default(field(object, "status"), json!({ "loadBalancer": {} }));
    let spec = field(object, "spec");
    if text(spec, "/clusterIP") == "None" {
        default(spec, json!({ "clusterIPs": ["None"] }));
        // The family of the addresses that a client puts behind it is unknown.
        if spec["selector"].is_null() {
            default(spec, json!({ "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack" }));
        }
    }
    default(spec, json!({ "type": "ClusterIP", "sessionAffinity": "None" }));
    if text(spec, "/type") != "ExternalName" {
        default(
            spec,
            json!({ "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack" }),
        );
    }
    each(spec, "ports", |port| {
        let number = port["port"].clone();
        default(port, json!({ "protocol": "TCP", "targetPort": number }));
    });
}

fn endpoint_slice(object: &mut Value) {
    each(object, "ports", |port| default(port, json!({ "name": "", "protocol": "TCP" })));
    each(object, "endpoints", |endpoint| default(endpoint, json!({ "conditions": {} })));
}

fn pod_disruption_budget(object: &mut Value) {
    default(object, json!({ "status": {} }));
    let counts = json!({ "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 });
    default(field(object, "status"), counts);
}

/// Sets the type, and moves `stringData` to `data`.
fn secret(object: &mut Value) {
    default(object, json!({ "type": "Opaque" }));
    let Some(Value::Object(texts)) = fields(object).remove("stringData") else { return };
    for (name, value) in texts {
        let bytes = k8s_openapi::ByteString(value.as_str().unwrap_or_default().as_bytes().to_vec());
        // Cannot fail: bytes are written as base64.
        let value = serde_json::to_value(bytes).unwrap_or_default();
        fields(field(object, "data")).insert(name, value);
    }
}

fn namespace(object: &mut Value) {
    let name = text(object, "/metadata/name").to_owned();
    default(object, json!({ "spec": {}, "status": {} }));
    default(field(object, "spec"), json!({ "finalizers": ["kubernetes"] }));
    default(field(object, "status"), json!({ "phase": "Active" }));
    if !name.is_empty() {
        default(field(object, "metadata"), json!({ "labels": {} }));
        fields(field(field(object, "metadata"), "labels"))
            .insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}
