//! Reads objects of a text, and sends ours to an API server in memory.

#![allow(dead_code, clippy::unwrap_used)]

use apiserver::ApiServer;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use import::{ImportOptions, Imported, Source, SourceObject, import};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Returns the objects of a text.
pub(crate) fn objects(text: &str) -> Vec<SourceObject> {
    let documents = yaml::read(text).unwrap();
    let object = |document: yaml::Document| SourceObject {
        at: format!("a.yaml:{}", document.places.start().line),
        value: document.value,
        is_context: false,
    };
    documents.into_iter().map(object).collect()
}

/// Returns the usual options.
pub(crate) fn options(from: Option<Source>) -> ImportOptions {
    ImportOptions { from, live: false, operator_namespace: "recif-system".to_owned() }
}

/// Imports the objects of a text.
pub(crate) fn imported(text: &str) -> Imported {
    import(&objects(text), &options(None)).unwrap()
}

/// Returns the lines as text.
pub(crate) fn lines(imported: &Imported) -> Vec<String> {
    imported.lines.iter().map(ToString::to_string).collect()
}

/// Returns the objects as a stream of YAML, then the lines as comments.
pub(crate) fn shown(imported: &Imported) -> String {
    let objects = imported.objects.iter().map(|object| format!("---\n{}", serde_yaml::to_string(object).unwrap()));
    let lines = lines(imported).into_iter().map(|line| format!("# {line}\n"));
    objects.chain(lines).collect::<String>() + &format!("# {}\n", imported.summary)
}

/// Returns an object of the output as JSON.
pub(crate) fn object(imported: &Imported, kind: &str, name: &str) -> Value {
    let objects = imported.objects.iter().map(|object| serde_json::to_value(object).unwrap());
    objects.into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap_or_default()
}

/// Returns what an API server says of each object that it refuses. Nothing is stored but namespaces.
pub(crate) async fn refusals(imported: &Imported) -> Vec<String> {
    let server = ApiServer::new(jiff::Timestamp::now, |_| None);
    let mut refusals = Vec::new();
    for object in &imported.objects {
        let object = serde_json::to_value(object).unwrap();
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let namespace = Some(text("/metadata/namespace")).filter(|it| !it.is_empty()).unwrap_or("default".to_owned());
        let body = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        send(&server, "/api/v1/namespaces", &body).await;
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let plural = match kind.as_str() {
            "Namespace" => continue,
            other => format!("{}s", other.to_lowercase()),
        };
        let path = format!("{root}/namespaces/{namespace}/{plural}?dryRun=All&fieldValidation=Strict");
        let (code, answer) = send(&server, &path, &object).await;
        if code != 201 {
            refusals.push(format!("{kind} {name}: {code} {}", answer["message"]));
        }
    }
    refusals
}

async fn send(server: &ApiServer, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let response = server.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Returns an Agent of kagent with these fields of `declarative`.
pub(crate) fn agent(name: &str, declarative: &Value) -> String {
    json!({
        "apiVersion": "kagent.dev/v1alpha2",
        "kind": "Agent",
        "metadata": { "name": name, "namespace": "n" },
        "spec": { "declarative": declarative },
    })
    .to_string()
}

/// Returns an object of this kind and spec, in namespace `n`.
pub(crate) fn thing(api_version: &str, kind: &str, name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": { "name": name, "namespace": "n" },
        "spec": spec,
    })
    .to_string()
}

/// Checks that these lines are reported.
pub(crate) fn assert_reported(text: &str, expected: &[&str]) {
    let lines = lines(&imported(text));
    for line in expected {
        assert!(lines.contains(&(*line).to_owned()), "{line}: {lines:#?}");
    }
}
