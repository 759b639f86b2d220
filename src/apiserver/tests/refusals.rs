//! Writes that name another object, make it one of another type, or are in an encoding that is not read.

#![allow(clippy::unwrap_used)]

mod common;

use common::{DEPLOYMENTS, JSON, MAPS, MERGE, MODELS, call, deployment, map, model, patch, send, server};
use serde_json::{Value, json};

const NAMESPACE: &str = "the namespace of the provided object does not match the namespace sent on the request";

#[tokio::test]
async fn a_patch_that_makes_an_object_of_another_type_is_invalid() {
    let server = server();
    for (path, object) in [(MAPS, map("a", "1")), (MODELS, model("a")), (DEPLOYMENTS, deployment("a"))] {
        call(&server, &format!("POST {path}"), object).await;
    }
    let unprocessable = [
        (MAPS, MERGE, json!({ "data": ["a"] })),
        (MAPS, MERGE, json!({ "kind": "Secret" })),
        (MAPS, MERGE, json!({ "apiVersion": "v2" })),
        (MAPS, MERGE, json!({ "metadata": { "labels": 1 } })),
        (MAPS, JSON, json!([{ "op": "replace", "path": "/data", "value": "x" }])),
        (MAPS, JSON, json!([{ "op": "replace", "path": "", "value": "x" }])),
        (MODELS, MERGE, json!({ "kind": null })),
        (MODELS, MERGE, json!({ "metadata": "x" })),
        (DEPLOYMENTS, "application/strategic-merge-patch+json", json!({ "spec": { "template": 1 } })),
    ];
    for (path, media_type, body) in unprocessable {
        let (code, status) = patch(&server, &format!("{path}/a"), media_type, body.clone()).await;
        let start = " \"\" is invalid: patch: Invalid value: \"{";
        let message = status["message"].as_str().unwrap_or_default();
        let begins =
            message.starts_with(start) || message.starts_with(" \"\" is invalid: patch: Invalid value: \"\\\"x");
        assert_eq!((code, &status["reason"], begins), (422, &json!("Invalid"), true), "{body} {status}");
        assert_eq!(status["details"]["causes"][0]["field"], "patch");
    }
    let (code, status) = patch(&server, &format!("{MODELS}/a"), MERGE, json!({ "spec": { "model": 1 } })).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("spec.model")),
        "the schema names the field"
    );
}

#[tokio::test]
async fn a_write_must_name_the_object_of_its_url() {
    let server = server();
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    call(&server, &format!("POST {DEPLOYMENTS}"), deployment("a")).await;
    let unnamed = "the name of the object (a based on URL) was undeterminable: name must be provided";
    let other = "the name of the object (b) does not match the name on the URL (a)";
    let scale = format!("{DEPLOYMENTS}/a/scale");
    let metadata = |field: &str, value: Value| json!({ "metadata": { field: value } });
    for (path, media_type, body, message) in [
        (format!("{MAPS}/a"), MERGE, metadata("namespace", "x".into()), NAMESPACE),
        (format!("{MAPS}/a"), MERGE, metadata("name", "b".into()), other),
        (format!("{MAPS}/a"), MERGE, metadata("name", Value::Null), unnamed),
        (format!("{MAPS}/a"), JSON, json!([{ "op": "remove", "path": "/metadata" }]), unnamed),
        (scale.clone(), MERGE, metadata("name", "b".into()), other),
        (scale.clone(), MERGE, metadata("namespace", "x".into()), NAMESPACE),
    ] {
        let (code, status) = patch(&server, &path, media_type, body).await;
        assert_eq!(
            (code, &status["reason"], &status["message"]),
            (400, &json!("BadRequest"), &json!(message)),
            "{path}"
        );
    }
    for (path, body, message) in [
        (format!("{MAPS}/a"), json!({ "data": {} }), unnamed),
        (format!("{MAPS}/a"), map("b", "1"), other),
        (format!("{MAPS}/a"), json!({ "metadata": { "name": "a", "namespace": "x" } }), NAMESPACE),
        (scale, json!({}), unnamed),
    ] {
        let (code, status) = call(&server, &format!("PUT {path}"), body).await;
        assert_eq!((code, &status["message"]), (400, &json!(message)), "{path}");
    }
    let (code, object) = patch(&server, "/api/v1/namespaces/default", MERGE, metadata("namespace", "x".into())).await;
    assert_eq!((code, object["metadata"].get("namespace")), (200, None), "an object in no namespace may name any");
}

#[tokio::test]
async fn a_patch_of_lists_says_what_to_use_instead() {
    let server = server();
    call(&server, &format!("POST {DEPLOYMENTS}"), deployment("a")).await;
    let body = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "i:2" }] } } } });
    let strategic = "application/strategic-merge-patch+json";
    let (code, status) = patch(&server, &format!("{DEPLOYMENTS}/a"), strategic, body).await;
    assert_eq!((code, &status["reason"]), (415, &json!("UnsupportedMediaType")));
    assert!(status["message"].as_str().unwrap().contains("kubectl apply --server-side"), "{status}");
}

#[tokio::test]
async fn protobuf_is_not_read_but_no_review_depends_on_it() {
    let server = server();
    let protobuf = "application/vnd.kubernetes.protobuf";
    let send = async |path: &str| send(&server, &format!("POST {path}"), protobuf, "k8s\0...").await;
    let (code, status) = send(MAPS).await;
    assert_eq!((code, &status["reason"]), (415, &json!("UnsupportedMediaType")));
    assert!(status["message"].as_str().unwrap().contains("--dry-run=client -o yaml | kubectl apply -f -"), "{status}");
    let (code, review) = send("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").await;
    assert_eq!((code, &review["status"]["allowed"]), (201, &json!(true)));
    let (code, review) = send("/apis/authentication.k8s.io/v1/selfsubjectreviews").await;
    assert_eq!((code, review["status"]["userInfo"]["username"].is_string()), (201, true));
    assert_eq!(send("/apis/authentication.k8s.io/v1/tokenreviews").await.0, 415, "its token must be read");
}
