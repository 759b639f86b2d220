//! Objects that a Pod needs: what names one that is not in the input is reported.

use serde_json::Value;

use crate::subject::Subject;

/// Reports the Secrets and ConfigMaps of volumes that are not in the input.
pub(crate) fn volumes(subject: &Subject<'_>, path: &str, volumes: &[Value]) {
    for (index, volume) in volumes.iter().enumerate() {
        let path = format!("{path}[{index}]");
        named(subject, &path, "Secret", &volume["secret"], "secretName");
        named(subject, &path, "ConfigMap", &volume["configMap"], "name");
        for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
            named(subject, &path, "Secret", &source["secret"], "name");
            named(subject, &path, "ConfigMap", &source["configMap"], "name");
        }
    }
}

/// Reports the Secrets and ConfigMaps of a container's variables that are not in the input.
pub(crate) fn container(subject: &Subject<'_>, path: &str, container: &Value) {
    let items = |key: &str| container[key].as_array().into_iter().flatten().enumerate();
    for (index, variable) in items("env") {
        let path = format!("{path}.env[{index}]");
        named(subject, &path, "Secret", &variable["valueFrom"]["secretKeyRef"], "name");
        named(subject, &path, "ConfigMap", &variable["valueFrom"]["configMapKeyRef"], "name");
    }
    for (index, source) in items("envFrom") {
        let path = format!("{path}.envFrom[{index}]");
        named(subject, &path, "Secret", &source["secretRef"], "name");
        named(subject, &path, "ConfigMap", &source["configMapRef"], "name");
    }
}

/// Reports a ServiceAccount that is not in the input; `default` is in every namespace.
pub(crate) fn account(subject: &Subject<'_>, path: &str, name: &str) {
    if name != "default" {
        subject.needs(path, "ServiceAccount", name);
    }
}

fn named(subject: &Subject<'_>, path: &str, kind: &str, reference: &Value, key: &str) {
    if let Some(name) = reference[key].as_str().filter(|name| !name.is_empty() && reference["optional"] != true) {
        subject.needs(path, kind, name);
    }
}
