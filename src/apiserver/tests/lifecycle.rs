//! Deletion: finalizers, grace periods, owners, namespaces.

#![allow(clippy::unwrap_used)]

mod common;

use apiserver::ApiServer;
use common::{MAPS, MERGE, PODS, call, map, patch, pod, server};
use serde_json::{Value, json};

/// Creates a ConfigMap with finalizers and owners, of which some block their owner's deletion.
async fn create(server: &ApiServer, name: &str, finalizers: &[&str], owners: &[&Value]) -> Value {
    let mut body = map(name, "1");
    body["metadata"]["finalizers"] = json!(finalizers);
    let references = owners.iter().map(|owner| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": true,
        })
    });
    body["metadata"]["ownerReferences"] = references.collect();
    let (code, created) = call(server, &format!("POST {MAPS}"), body).await;
    assert_eq!(code, 201, "{created}");
    created
}

async fn delete(server: &ApiServer, name: &str, propagation: &str) -> (u16, Value) {
    call(server, &format!("DELETE {MAPS}/{name}?propagationPolicy={propagation}"), Value::Null).await
}

async fn names(server: &ApiServer) -> Vec<String> {
    let (_, list) = call(server, &format!("GET {MAPS}"), Value::Null).await;
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_object_with_a_finalizer_waits_for_its_removal() {
    let server = server();
    create(&server, "a", &["recif.dev/cleanup"], &[]).await;
    let (code, marked) = delete(&server, "a", "Background").await;
    assert_eq!((code, &marked["metadata"]["deletionTimestamp"]), (200, &json!("2026-01-02T03:04:05Z")));
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(delete(&server, "a", "Background").await.1, marked, "the second time changes nothing");
    let path = format!("{MAPS}/a");
    let more = json!({ "metadata": { "finalizers": ["recif.dev/cleanup", "b/c"] } });
    let (code, status) = patch(&server, &path, MERGE, more).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (422, &json!("FieldValueForbidden")));
    let (code, _) = patch(&server, &path, MERGE, json!({ "metadata": { "finalizers": null } })).await;
    assert_eq!((code, names(&server).await), (200, vec![]));
}

#[tokio::test]
async fn what_has_no_owner_any_more_is_deleted() {
    let server = server();
    let owner = create(&server, "a", &[], &[]).await;
    let other = create(&server, "b", &[], &[]).await;
    let child = create(&server, "c", &[], &[&owner]).await;
    create(&server, "d", &[], &[&child]).await;
    create(&server, "e", &[], &[&owner, &other]).await;
    delete(&server, "a", "Background").await;
    assert_eq!(names(&server).await, ["b", "e"]);
    let (_, kept) = call(&server, &format!("GET {MAPS}/e"), Value::Null).await;
    assert_eq!(kept["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    // An object of the same name is another one.
    create(&server, "a", &[], &[]).await;
    create(&server, "f", &[], &[&owner]).await;
    assert_eq!(names(&server).await, ["a", "b", "e"]);
}

#[tokio::test]
async fn in_the_foreground_the_owner_goes_last() {
    let server = server();
    let owner = create(&server, "a", &[], &[]).await;
    create(&server, "b", &["x/y"], &[&owner]).await;
    let (code, marked) = delete(&server, "a", "Foreground").await;
    assert_eq!((code, &marked["metadata"]["finalizers"]), (200, &json!(["foregroundDeletion"])));
    assert_eq!(names(&server).await, ["a", "b"]);
    patch(&server, &format!("{MAPS}/b"), MERGE, json!({ "metadata": { "finalizers": [] } })).await;
    assert_eq!(names(&server).await, Vec::<String>::new());
}

#[tokio::test]
async fn orphans_stay_without_owner() {
    let server = server();
    let owner = create(&server, "a", &[], &[]).await;
    create(&server, "b", &[], &[&owner]).await;
    delete(&server, "a", "Orphan").await;
    assert_eq!(names(&server).await, ["b"]);
    let (_, orphan) = call(&server, &format!("GET {MAPS}/b"), Value::Null).await;
    assert_eq!(orphan["metadata"].get("ownerReferences"), None);
}

#[tokio::test]
async fn a_pod_on_a_node_has_time_to_end_which_can_only_get_shorter() {
    let server = server();
    call(&server, &format!("POST {PODS}"), pod("a")).await;
    let end = |pod: &Value| {
        (pod["metadata"]["deletionTimestamp"].clone(), pod["metadata"]["deletionGracePeriodSeconds"].clone())
    };
    let path = format!("DELETE {PODS}/a");
    let (_, marked) = call(&server, &path, Value::Null).await;
    assert_eq!(end(&marked), (json!("2026-01-02T03:04:35Z"), json!(30)));
    let (_, shorter) = call(&server, &path, json!({ "gracePeriodSeconds": 10 })).await;
    assert_eq!(end(&shorter), (json!("2026-01-02T03:04:15Z"), json!(10)));
    let (_, longer) = call(&server, &path, json!({ "gracePeriodSeconds": 60 })).await;
    assert_eq!(end(&longer), end(&shorter));
    let (_, ended) = call(&server, &path, json!({ "gracePeriodSeconds": 0 })).await;
    assert_eq!(end(&ended), (json!("2026-01-02T03:04:05Z"), json!(0)));
    assert_eq!(call(&server, &format!("GET {PODS}/a"), Value::Null).await.0, 404);
    let mut waiting = pod("b");
    waiting["spec"]["nodeName"] = Value::Null;
    call(&server, &format!("POST {PODS}"), waiting).await;
    call(&server, &format!("DELETE {PODS}/b"), Value::Null).await;
    assert_eq!(call(&server, &format!("GET {PODS}/b"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_pod_goes_after_its_last_finalizer_and_its_end() {
    let server = server();
    let mut body = pod("a");
    body["metadata"]["finalizers"] = json!(["recif.dev/cleanup"]);
    call(&server, &format!("POST {PODS}"), body).await;
    let path = format!("{PODS}/a");
    call(&server, &format!("DELETE {path}"), Value::Null).await;
    let (_, running) = patch(&server, &path, MERGE, json!({ "metadata": { "finalizers": null } })).await;
    assert_eq!(running["metadata"]["deletionGracePeriodSeconds"], 30, "it has time left");
    let ended = json!({ "status": { "phase": "Failed", "containerStatuses": [] } });
    assert_eq!(patch(&server, &format!("{path}/status"), MERGE, ended).await.0, 200, "the node tells how it ended");
    assert_eq!(call(&server, &format!("GET {path}"), Value::Null).await.0, 200, "only its node knows when it is gone");
    let uid = running["metadata"]["uid"].clone();
    let wrong = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": "x" } });
    assert_eq!(call(&server, &format!("DELETE {path}"), wrong).await.0, 409);
    let right = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
    assert_eq!(call(&server, &format!("DELETE {path}"), right).await.0, 200);
    assert_eq!(call(&server, &format!("GET {path}"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_grace_period_is_neither_negative_nor_endless() {
    let server = server();
    let longest = json!("2094-01-20T06:18:12Z");
    for (own, wanted, seconds, end) in [
        (i64::MAX, Value::Null, i64::from(i32::MAX), &longest),
        (30, json!(i64::MAX), i64::from(i32::MAX), &longest),
        (-1, Value::Null, 1, &json!("2026-01-02T03:04:06Z")),
        (30, json!(-5), 1, &json!("2026-01-02T03:04:06Z")),
    ] {
        let mut body = pod("a");
        body["spec"]["terminationGracePeriodSeconds"] = own.into();
        call(&server, &format!("POST {PODS}"), body).await;
        let path = format!("DELETE {PODS}/a");
        let (code, marked) = call(&server, &path, json!({ "gracePeriodSeconds": wanted })).await;
        let found = (&marked["metadata"]["deletionGracePeriodSeconds"], &marked["metadata"]["deletionTimestamp"]);
        assert_eq!((code, found), (200, (&json!(seconds), end)));
        call(&server, &path, json!({ "gracePeriodSeconds": 0 })).await;
    }
}

#[tokio::test]
async fn a_namespace_is_emptied_first_and_takes_nothing_new() {
    let server = server();
    let (namespace, maps) = ("/api/v1/namespaces/n", "/api/v1/namespaces/n/configmaps");
    call(&server, "POST /api/v1/namespaces", json!({ "metadata": { "name": "n" } })).await;
    let mut kept = map("a", "1");
    kept["metadata"]["finalizers"] = json!(["x/y"]);
    for body in [kept, map("b", "1")] {
        assert_eq!(call(&server, &format!("POST {maps}"), body).await.0, 201);
    }
    assert_eq!(call(&server, &format!("DELETE {namespace}"), Value::Null).await.0, 200);
    let (_, left) = call(&server, &format!("GET {maps}"), Value::Null).await;
    assert_eq!((left["items"].as_array().unwrap().len(), &left["items"][0]["metadata"]["name"]), (1, &json!("a")));
    let (_, found) = call(&server, &format!("GET {namespace}"), Value::Null).await;
    assert_eq!(found["status"]["phase"], "Terminating");
    let (code, status) = call(&server, &format!("POST {maps}"), map("c", "1")).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (403, &json!("NamespaceTerminating")));
    let message =
        "configmaps \"c\" is forbidden: unable to create new content in namespace n because it is being terminated";
    assert_eq!(status["message"], message);
    patch(&server, &format!("{maps}/a"), MERGE, json!({ "metadata": { "finalizers": null } })).await;
    assert_eq!(call(&server, &format!("GET {namespace}"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn the_first_namespaces_and_all_at_once_cannot_be_deleted() {
    let server = server();
    create(&server, "a", &[], &[]).await;
    for name in ["default", "kube-system"] {
        let (code, status) = call(&server, &format!("DELETE /api/v1/namespaces/{name}"), Value::Null).await;
        let message = format!("namespaces {name:?} is forbidden: this namespace may not be deleted");
        assert_eq!((code, &status["reason"], &status["message"]), (403, &json!("Forbidden"), &json!(message)));
    }
    assert_eq!(call(&server, "DELETE /api/v1/namespaces", Value::Null).await.0, 405);
    let (_, resources) = call(&server, "GET /api/v1", Value::Null).await;
    let of_namespaces = resources["resources"].as_array().unwrap().iter().find(|found| found["name"] == "namespaces");
    assert!(!of_namespaces.unwrap()["verbs"].as_array().unwrap().contains(&json!("deletecollection")));
    assert_eq!(names(&server).await, ["a"]);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = server();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut body = map(name, "1");
        body["metadata"]["labels"] = json!({ "l": label });
        call(&server, &format!("POST {MAPS}"), body).await;
    }
    let (code, list) = call(&server, &format!("DELETE {MAPS}?labelSelector=l=x"), Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 2));
    assert_eq!(names(&server).await, ["b"]);
}

#[tokio::test]
async fn a_deletion_is_bound_to_the_version_it_names() {
    let server = server();
    let created = create(&server, "a", &[], &[]).await;
    patch(&server, &format!("{MAPS}/a"), MERGE, json!({ "data": { "k": "2" } })).await;
    let condition = json!({ "preconditions": { "resourceVersion": created["metadata"]["resourceVersion"] } });
    assert_eq!(call(&server, &format!("DELETE {MAPS}/a"), condition).await.0, 409);
    assert_eq!(names(&server).await, ["a"]);
}
