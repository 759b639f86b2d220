//! Requests to a server of its own, without a client. Each test file uses a part of it.

#![allow(dead_code)]

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use apiserver::ApiServer;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Media types of patches.
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// Path of the ConfigMaps of a namespace.
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Path of the Pods of a namespace.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// Path of the Deployments of a namespace.
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Path of the Models of a namespace.
pub(crate) const MODELS: &str = "/apis/agents.recif.dev/v1/namespaces/default/models";

/// Makes a server whose time stands still, and which knows the token `known`.
pub(crate) fn server() -> ApiServer {
    let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
    ApiServer::new(move || now, |token| (token == "known").then(|| "system:serviceaccount:default:a".to_owned()))
}

/// Makes a server whose time moves on by one second each time it is read.
pub(crate) fn server_with_moving_time() -> ApiServer {
    let seconds = AtomicI64::new(1_800_000_000);
    let clock = move || Timestamp::from_second(seconds.fetch_add(1, Ordering::Relaxed)).unwrap();
    ApiServer::new(clock, |token| (token == "known").then(|| "system:serviceaccount:default:a".to_owned()))
}

/// Makes a server whose time is a number of seconds, which a test may change.
pub(crate) fn server_at(seconds: Arc<AtomicI64>) -> ApiServer {
    ApiServer::new(move || Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap(), |_| None)
}

/// Sends a request such as `GET /version`, and returns the code and body of the response.
pub(crate) async fn call(server: &ApiServer, request: &str, body: Value) -> (u16, Value) {
    send(server, request, "application/json", &if body.is_null() { String::new() } else { body.to_string() }).await
}

/// Sends a patch, by the field manager `test` unless the path names another one.
pub(crate) async fn patch(server: &ApiServer, path: &str, media_type: &str, body: Value) -> (u16, Value) {
    send(server, &format!("PATCH {path}"), media_type, &body.to_string()).await
}

/// Reads an object in a form, such as a table.
pub(crate) async fn get_as(server: &ApiServer, target: &str, accept: &str) -> Value {
    let request = Request::builder().uri(target).header(header::ACCEPT, accept);
    let response = server.clone().oneshot(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// Sends a request with a body of a media type.
pub(crate) async fn send(server: &ApiServer, request: &str, media_type: &str, body: &str) -> (u16, Value) {
    let (method, target) = request.split_once(' ').unwrap();
    let request = Request::builder().method(method).uri(target).header(header::CONTENT_TYPE, media_type);
    let request = request.header(header::USER_AGENT, "test/1").body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let response = server.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into()))
}

/// Reads the next lines of a watch, each as its type and object.
pub(crate) struct Lines(std::pin::Pin<Box<dyn futures::Stream<Item = Value> + Send>>);

impl Lines {
    /// Begins a watch.
    pub(crate) async fn open(server: &ApiServer, target: &str) -> Self {
        Self::open_as(server, target, "application/json").await
    }

    /// Begins a watch that accepts a media type.
    pub(crate) async fn open_as(server: &ApiServer, target: &str, accept: &str) -> Self {
        let request =
            Request::builder().uri(target).header(header::ACCEPT, accept).body(Full::new(Bytes::new())).unwrap();
        let response = server.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        let lines = response.into_body().into_data_stream();
        Self(Box::pin(lines.map(|line| serde_json::from_slice(&line.unwrap()).unwrap())))
    }

    /// Returns the next line.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        self.0.next().await
    }

    /// Returns the next line as its type and the object's name.
    pub(crate) async fn next_short(&mut self) -> Option<(String, String)> {
        let line = self.next().await?;
        let text = |pointer: &str| line.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some((text("/type"), text("/object/metadata/name")))
    }
}

/// Returns a ConfigMap with one entry.
pub(crate) fn map(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "k": value } })
}

/// Returns a Pod that runs on a node.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] },
    })
}

/// Returns a Deployment with labels `app: NAME`.
pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "i:1" }] },
            },
        },
    })
}

/// Returns a Model.
pub(crate) fn model(name: &str) -> Value {
    json!({
        "apiVersion": "agents.recif.dev/v1", "kind": "Model", "metadata": { "name": name },
        "spec": { "provider": "p", "model": "m", "pluginConfigRef": { "name": "c" } },
    })
}
