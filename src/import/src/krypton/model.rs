//! Model of Krypton: llama.cpp in a Deployment, and a Model of ours on it.

use serde_json::{Value, json};

use crate::{
    env::{self, set},
    fields::Fields,
    needs, period,
    subject::Subject,
};

/// Image that Krypton's manager takes.
const IMAGE: &str = "ghcr.io/ggml-org/llama.cpp:server";

/// Turns a Model into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let spec = subject.spec();
    let source = spec.part("source");
    let (repository, file) = (source.text("huggingface"), source.text("file"));
    let (Some(repository), Some(file)) = (repository, file) else {
        subject.notes.skip("", "Krypton refuses it too: its source names no file of Hugging Face");
        [&source, &spec].into_iter().for_each(Fields::ignore);
        return;
    };
    let name = subject.name.as_str();
    let port = env::port(subject, &spec, "port").unwrap_or(8080);
    let mut args: Vec<String> = ["--host", "0.0.0.0", "--port"].map(str::to_owned).into();
    args.extend([port.to_string(), "--hf-repo".into(), repository.into(), "--hf-file".into(), file.into()]);
    args.extend(["--alias".to_owned(), name.to_owned()]);
    args.extend(spec.texts("args").into_iter().map(str::to_owned));
    let mut container = json!({
        "name": "llama-server",
        "image": spec.text("image").unwrap_or(IMAGE),
        "args": args,
        "ports": [{ "name": "http", "containerPort": port }],
        "readinessProbe": { "httpGet": { "path": "/health", "port": port } },
        "volumeMounts": [{ "name": "cache", "mountPath": "/root/.cache/llama.cpp" }],
    });
    if let Some(fields) = container.as_object_mut() {
        set(fields, "resources", env::resources(&spec));
        set(fields, "imagePullPolicy", env::pull_policy(subject, &spec));
        let variables = env::variables(subject, &spec, "env", "Deployment", None, &[]);
        env::set_list(fields, "env", variables);
        set(fields, "envFrom", env::sources(subject, &spec, "envFrom"));
        set(fields, "startupProbe", startup_probe(subject, &spec, port));
    }
    let mut pod = json!({
        "containers": [container],
        "volumes": [{ "name": "cache", "emptyDir": { "sizeLimit": "20Gi" } }],
    });
    if let Some(fields) = pod.as_object_mut() {
        set(fields, "imagePullSecrets", env::pull_secrets(subject, &spec));
        let account = spec.text("serviceAccountName");
        set(fields, "serviceAccountName", account);
        if let Some(name) = account {
            needs::account(subject, "spec.serviceAccountName", name);
        }
    }
    let fewest = spec.int("minReplicas").unwrap_or(1).clamp(0, i64::from(i32::MAX));
    if spec.int("maxReplicas").is_some_and(|most| most > fewest) {
        subject.notes.loss("spec.maxReplicas", "a plain Deployment is not scaled");
    }
    if let Some(runtime) = spec.text("runtime").filter(|runtime| *runtime != "llama.cpp") {
        subject.notes.loss("spec.runtime", format!("is llama.cpp here, not {runtime:?}"));
    }
    let labels = json!({ "app.kubernetes.io/name": name, "app.kubernetes.io/component": "model" });
    let home = if subject.namespace().is_empty() { "default" } else { subject.namespace() };
    if subject.namespace().is_empty() {
        subject
            .notes
            .todo("metadata.namespace", "is not given: correct baseUrl of the PluginConfig if it is not default");
    }
    let url = format!("http://{name}.{home}.svc:{port}/v1");
    subject.emit("PluginConfig", json!({ "type": "openai", "extraConfig": { "baseUrl": url } }));
    let model = json!({ "provider": "openai", "model": name, "pluginConfigRef": { "name": name } });
    subject.emit("Model", model);
    let ports = json!([{ "name": "http", "port": port, "targetPort": port }]);
    subject.emit("Service", json!({ "selector": labels, "ports": ports }));
    let template = json!({ "metadata": { "labels": labels }, "spec": pod });
    let deployment: Value = json!({ "replicas": fewest, "selector": { "matchLabels": labels }, "template": template });
    subject.emit("Deployment", deployment);
    subject.notes.change("", "a plain Deployment, not managed by the operator");
}

/// Returns the probe that gives the model its time to start, in seconds of which each is asked once.
fn startup_probe(subject: &Subject<'_>, spec: &Fields<'_>, port: i64) -> Option<Value> {
    let given = spec.text("startupTimeout")?;
    let Some(seconds) = period::seconds(given) else {
        subject.notes.skip("spec.startupTimeout", "is no length of time");
        return None;
    };
    subject.notes.change("spec.startupTimeout", "is a startupProbe now: a container that is later is started again");
    let get = json!({ "path": "/health", "port": port });
    Some(json!({ "httpGet": get, "periodSeconds": 1, "failureThreshold": seconds.clamp(1, 86_400) }))
}
