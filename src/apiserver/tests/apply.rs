//! Server-side apply: two field managers, conflicts, what is not applied any more.

#![allow(clippy::unwrap_used)]

mod common;

use apiserver::ApiServer;
use common::{
    APPLY, DEPLOYMENTS, MAPS, MERGE, MODELS, call, deployment, map, model, patch, send, server, server_with_moving_time,
};
use serde_json::{Value, json};

/// Applies an object by a field manager.
async fn apply(server: &ApiServer, path: &str, manager: &str, object: Value) -> (u16, Value) {
    patch(server, &format!("{path}?fieldManager={manager}"), APPLY, object).await
}

/// Returns the fields of a manager.
fn fields(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().find(|entry| entry["manager"] == manager).map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

/// Returns a configuration of a Deployment with an image and, if given, replicas.
fn config(image: &str, replicas: Option<u32>) -> Value {
    let mut object = deployment("a");
    object["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = replicas.into();
    }
    object
}

/// Returns a configuration of a ConfigMap with one entry.
fn applied(key: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { key: "1" } })
}

const PATH: &str = "/apis/apps/v1/namespaces/default/deployments/a";

#[tokio::test]
async fn applying_twice_changes_nothing() {
    let server = server();
    let (code, first) = apply(&server, PATH, "m", config("i:1", Some(2))).await;
    assert_eq!(code, 201);
    assert_eq!(apply(&server, PATH, "m", config("i:1", Some(2))).await, (200, first.clone()));
    let expected = json!({
        "f:spec": {
            "f:replicas": {}, "f:selector": {},
            "f:template": {
                "f:metadata": { "f:labels": { "f:app": {} } },
                "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": { ".": {}, "f:image": {}, "f:name": {} } } },
            },
        },
    });
    assert_eq!(fields(&first, "m"), expected, "defaults have no owner");
    assert_eq!(first["spec"]["template"]["spec"]["restartPolicy"], "Always");
}

#[tokio::test]
async fn applying_later_what_admission_normalises_changes_nothing() {
    let server = server_with_moving_time();
    let metadata = json!({ "labels": {}, "annotations": {} });
    for (path, object) in [
        (
            "/api/v1/namespaces/default/secrets/s",
            json!({ "apiVersion": "v1", "kind": "Secret", "stringData": { "k": "v" }, "metadata": metadata }),
        ),
        (PATH, {
            let mut object = config("i:1", None);
            object["status"] = json!({ "replicas": 3 });
            object
        }),
    ] {
        let (code, first) = apply(&server, path, "m", object.clone()).await;
        assert_eq!(code, 201);
        assert_eq!(apply(&server, path, "m", object).await, (200, first));
    }
}

#[tokio::test]
async fn a_field_of_another_manager_is_taken_only_by_force() {
    let server = server();
    apply(&server, PATH, "m", config("i:1", Some(2))).await;
    let (code, status) = apply(&server, PATH, "n", config("i:2", Some(3))).await;
    let message = "Apply failed with 2 conflicts: conflicts with \"m\":\n- .spec.replicas\n\
                   - .spec.template.spec.containers[name=\"c\"].image";
    assert_eq!((code, &status["message"], &status["reason"]), (409, &json!(message), &json!("Conflict")));
    let cause =
        json!({ "reason": "FieldManagerConflict", "message": "conflict with \"m\"", "field": ".spec.replicas" });
    assert_eq!(status["details"]["causes"][0], cause);
    let (code, status) = apply(&server, PATH, "n", config("i:1", Some(3))).await;
    let message = "Apply failed with 1 conflict: conflict with \"m\": .spec.replicas";
    assert_eq!((code, &status["message"]), (409, &json!(message)));

    let (code, forced) = apply(&server, PATH, "n&force=true", config("i:1", Some(3))).await;
    assert_eq!((code, &forced["spec"]["replicas"]), (200, &json!(3)));
    assert_eq!(fields(&forced, "m").pointer("/f:spec/f:replicas"), None);
    assert_ne!(fields(&forced, "m").pointer("/f:spec/f:template"), None, "what both apply alike belongs to both");
}

#[tokio::test]
async fn an_update_owns_what_it_changes_and_an_apply_says_so() {
    let server = server();
    apply(&server, PATH, "m", config("i:1", Some(2))).await;
    let (_, updated) =
        patch(&server, &format!("{PATH}?fieldManager=u"), MERGE, json!({ "spec": { "replicas": 5 } })).await;
    assert_eq!(fields(&updated, "u"), json!({ "f:spec": { "f:replicas": {} } }));
    assert_eq!(fields(&updated, "m").pointer("/f:spec/f:replicas"), None);
    let (code, status) = apply(&server, PATH, "m", config("i:1", Some(2))).await;
    let message = "Apply failed with 1 conflict: conflict with \"u\" using apps/v1: .spec.replicas";
    assert_eq!((code, &status["message"]), (409, &json!(message)));
}

#[tokio::test]
async fn owners_are_in_the_order_of_operation_time_and_name() {
    let server = server_with_moving_time();
    let path = format!("{MAPS}/a");
    let change = |field: &str| json!({ "data": { field: "1" } });
    for manager in ["y", "x"] {
        patch(&server, &format!("{path}?fieldManager={manager}"), APPLY, applied(manager)).await;
    }
    for manager in ["d", "c"] {
        patch(&server, &format!("{path}?fieldManager={manager}"), MERGE, change(manager)).await;
    }
    let (_, object) = call(&server, &format!("GET {path}"), Value::Null).await;
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let managers: Vec<_> = entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, ["y", "x", "d", "c"]);
    assert!(entries.windows(2).all(|pair| pair[0]["time"].as_str() < pair[1]["time"].as_str()), "{entries:#?}");
}

#[tokio::test]
async fn what_is_not_applied_any_more_goes_unless_another_manager_has_it() {
    let server = server();
    apply(&server, PATH, "m", config("i:1", Some(2))).await;
    let (_, scaled) = apply(&server, PATH, "m", config("i:1", None)).await;
    assert_eq!(scaled["spec"]["replicas"], 1, "the default");
    apply(&server, PATH, "m", config("i:1", Some(4))).await;
    let scale = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "replicas": 4 } });
    apply(&server, PATH, "s", scale).await;
    let (_, kept) = apply(&server, PATH, "m", config("i:1", None)).await;
    assert_eq!(kept["spec"]["replicas"], 4);
    let nothing = json!({ "apiVersion": "apps/v1", "kind": "Deployment" });
    let (_, given_up) = apply(&server, PATH, "s", nothing).await;
    assert_eq!((&given_up["spec"]["replicas"], fields(&given_up, "s")), (&json!(1), Value::Null));
}

#[tokio::test]
async fn items_of_keyed_lists_are_merged_and_removed_one_by_one() {
    let server = server();
    let conditions = |names: &[(&str, &str)]| {
        let items = names.iter().map(|(name, status)| {
            json!({
                "type": name, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        });
        json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Model", "status": { "conditions": items.collect::<Vec<_>>() } })
    };
    call(&server, &format!("POST {MODELS}"), model("a")).await;
    let path = format!("{MODELS}/a/status");
    apply(&server, &path, "m", conditions(&[("A", "True"), ("B", "True")])).await;
    let (code, both) = apply(&server, &path, "n", conditions(&[("C", "True")])).await;
    let types = |object: &Value| {
        let items = object["status"]["conditions"].as_array().unwrap().iter();
        let types = items.map(|item| item["type"].as_str().unwrap().to_owned());
        // The others are defaults, which no manager owns.
        types.filter(|name| name.len() == 1).collect::<Vec<_>>()
    };
    assert_eq!((code, types(&both).len()), (200, 3));
    let (_, less) = apply(&server, &path, "m", conditions(&[("B", "False")])).await;
    let mut left = types(&less);
    left.sort();
    assert_eq!(left, ["B", "C"]);
    let (code, status) = apply(&server, &path, "n", conditions(&[("B", "Unknown"), ("C", "True")])).await;
    let message = "Apply failed with 1 conflict: conflict with \"m\" with subresource \"status\": \
                   .status.conditions[type=\"B\"].status";
    assert_eq!((code, &status["message"]), (409, &json!(message)));
}

#[tokio::test]
async fn version_1_applies_only_if_the_object_is_not_there() {
    let server = server();
    let mut object = map("a", "1");
    object["metadata"]["resourceVersion"] = "1".into();
    let path = format!("{MAPS}/a");
    assert_eq!(apply(&server, &path, "m", object.clone()).await.0, 201);
    object["data"]["k"] = "2".into();
    let (code, status) = apply(&server, &path, "m", object).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert!(status["message"].as_str().unwrap().contains("the object has been modified"));
}

#[tokio::test]
async fn an_apply_is_bound_to_the_uid_it_names() {
    let server = server();
    let mut object = map("a", "1");
    object["metadata"]["uid"] = "x".into();
    let path = format!("{MAPS}/a");
    let (code, status) = apply(&server, &path, "m", object.clone()).await;
    let message = "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid x, \
                   and no existing object was found";
    assert_eq!((code, &status["message"]), (409, &json!(message)));
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    let (code, status) = apply(&server, &path, "m", object).await;
    assert_eq!((code, status["message"].as_str().unwrap().contains("Precondition failed: UID")), (409, true));
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused() {
    let server = server();
    let path = format!("{MODELS}/a");
    let object = model("a");
    let with = |pointer: &str, value: Value| {
        let mut object = object.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        object
    };
    let unknown = "failed to create typed patch object (/a; agents.recif.dev/v1, Kind=Model): .spec.x: field not \
                   declared in schema";
    let cases = [
        ("m", with("/spec/x", 1.into()), 500, unknown),
        ("m", with("/metadata/managedFields", json!([])), 400, "metadata.managedFields must be nil"),
        (
            "m",
            with("/metadata/name", "b".into()),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            "",
            object.clone(),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ),
    ];
    for (manager, object, code, message) in cases {
        let (found, status) = apply(&server, &path, manager, object).await;
        assert_eq!((found, &status["message"]), (code, &json!(message)));
    }
    assert_eq!(call(&server, &format!("GET {path}"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_configuration_may_be_yaml() {
    let server = server();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n";
    let (code, object) = send(&server, &format!("PATCH {MAPS}/a?fieldManager=m"), APPLY, text).await;
    assert_eq!((code, &object["data"]["k"]), (201, &json!("v")));
}

#[tokio::test]
async fn the_scale_is_applied_as_a_subresource() {
    let server = server();
    call(&server, &format!("POST {DEPLOYMENTS}"), deployment("a")).await;
    let scale = json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "spec": { "replicas": 4 } });
    let (code, answer) = apply(&server, &format!("{PATH}/scale"), "s&force=true", scale).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(4)));
    let (_, object) = call(&server, &format!("GET {PATH}"), Value::Null).await;
    let entry =
        object["metadata"]["managedFields"].as_array().unwrap().iter().find(|entry| entry["manager"] == "s").cloned();
    assert_eq!(entry.unwrap()["subresource"], "scale");
}
