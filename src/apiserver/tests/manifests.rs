//! The manifests that the end-to-end tests apply to a real API server, with its messages.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use apiserver::ApiServer;
use common::{APPLY, call, patch, server};
use serde::Deserialize as _;
use serde_json::Value;

/// Returns the manifests of a folder in `e2e/manifests`, each with its file and the file's text.
fn manifests(folder: &str) -> Vec<(PathBuf, String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/manifests").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let documents = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let all: Vec<Value> =
            serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap()).collect();
        all.into_iter().filter(|it| !it.is_null()).map(move |it| (path.clone(), text.clone(), it)).collect::<Vec<_>>()
    };
    let all: Vec<_> = paths.into_iter().flat_map(documents).collect();
    assert!(all.len() > 10, "there are manifests");
    all
}

/// Returns the plural of each kind of ours.
async fn plurals(server: &ApiServer) -> BTreeMap<String, String> {
    let (_, list) = call(server, "GET /apis/agents.recif.dev/v1", Value::Null).await;
    let resources =
        list["resources"].as_array().unwrap().iter().filter(|it| !it["name"].as_str().unwrap().contains('/'));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    resources.map(|resource| (text(&resource["kind"]), text(&resource["name"]))).collect()
}

/// Sends a strict and forced apply as a dry run, as the end-to-end tests do.
async fn would_apply(server: &ApiServer, plurals: &BTreeMap<String, String>, manifest: Value) -> (u16, Value) {
    let plural = &plurals[manifest["kind"].as_str().unwrap()];
    let name = manifest["metadata"]["name"].as_str().unwrap();
    let path = format!("/apis/agents.recif.dev/v1/namespaces/default/{plural}/{name}");
    let query = "fieldManager=e2e&force=true&fieldValidation=Strict&dryRun=All";
    patch(server, &format!("{path}?{query}"), APPLY, manifest).await
}

#[tokio::test]
async fn every_good_manifest_is_accepted() {
    let server = server();
    let plurals = plurals(&server).await;
    assert_eq!(plurals.len(), 9, "{plurals:?}");
    for (path, _, manifest) in manifests("accept") {
        let (code, answer) = would_apply(&server, &plurals, manifest).await;
        assert_eq!(code, 201, "{}: {}", path.display(), answer["message"]);
    }
}

#[tokio::test]
async fn every_bad_manifest_is_refused_with_the_message_of_the_api_server() {
    let server = server();
    let plurals = plurals(&server).await;
    let mut wrong = Vec::new();
    for (path, text, manifest) in manifests("reject") {
        let expected = text.lines().next().unwrap().strip_prefix("# message: ").unwrap();
        let (code, answer) = would_apply(&server, &plurals, manifest).await;
        let message = answer["message"].as_str().unwrap_or_default();
        if code < 400 || !message.contains(expected) {
            wrong.push(format!("{}\n  expected {expected}\n  got {code} {message}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
