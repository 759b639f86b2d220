//! The verbs, one request after the other, and the words of what is refused.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    APPLY, DEPLOYMENTS, JSON, MAPS, MERGE, MODELS, PODS, call, deployment, map, model, patch, pod, send, server,
};
use serde_json::{Value, json};

#[tokio::test]
async fn each_verb_does_what_it_says() {
    let server = server();
    let (code, created) = call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    assert_eq!(code, 201);
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(created["metadata"]["creationTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(created["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert_eq!(created["metadata"].get("generation"), None, "a ConfigMap has none");
    let entry = json!([{
        "manager": "test", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { ".": {}, "f:k": {} } },
    }]);
    assert_eq!(created["metadata"]["managedFields"], entry);
    assert_eq!(call(&server, &format!("GET {MAPS}/a"), Value::Null).await, (200, created.clone()));

    let mut changed = created.clone();
    changed["data"] = json!({ "k": "2" });
    let (code, updated) = call(&server, &format!("PUT {MAPS}/a"), changed).await;
    assert_eq!((code, &updated["data"]["k"]), (200, &json!("2")));
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&updated) > version(&created) && version(&created) > 1);

    let (code, merged) = patch(&server, &format!("{MAPS}/a"), MERGE, json!({ "data": { "k": null, "l": "3" } })).await;
    assert_eq!((code, &merged["data"]), (200, &json!({ "l": "3" })));
    let steps =
        json!([{ "op": "test", "path": "/data/l", "value": "3" }, { "op": "add", "path": "/data/m", "value": "4" }]);
    let (code, patched) = patch(&server, &format!("{MAPS}/a"), JSON, steps).await;
    assert_eq!((code, &patched["data"]), (200, &json!({ "l": "3", "m": "4" })));
    assert_eq!(patched["metadata"]["uid"], created["metadata"]["uid"]);

    let (code, list) = call(&server, &format!("GET {MAPS}"), Value::Null).await;
    assert_eq!((code, &list["kind"], &list["items"][0]["data"]["m"]), (200, &json!("ConfigMapList"), &json!("4")));
    assert_eq!(list["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"]);
    let (code, status) = call(&server, &format!("DELETE {MAPS}/a"), Value::Null).await;
    let details = json!({ "name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"] });
    assert_eq!((code, &status["status"], &status["details"]), (200, &json!("Success"), &details));
    assert_eq!(call(&server, &format!("GET {MAPS}"), Value::Null).await.1["items"], json!([]));
}

#[tokio::test]
async fn an_update_that_changes_nothing_has_no_new_version() {
    let server = server();
    let (_, created) = call(&server, &format!("POST {MODELS}"), model("a")).await;
    assert_eq!(call(&server, &format!("PUT {MODELS}/a"), created.clone()).await, (200, created.clone()));
    let same = json!({ "spec": { "model": "m" } });
    assert_eq!(patch(&server, &format!("{MODELS}/a"), MERGE, same).await, (200, created));
}

#[tokio::test]
async fn what_is_refused_is_refused_in_the_words_of_the_api_server() {
    let server = server();
    let (_, created) = call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    let (_, custom) = call(&server, &format!("POST {MODELS}"), model("a")).await;
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let with = |object: &Value, field: &str, value: Value| {
        let mut object = object.clone();
        object["metadata"][field] = value;
        object
    };
    let modified = "the object has been modified; please apply your changes to the latest version and try again";
    let conflict = format!("Operation cannot be fulfilled on configmaps \"a\": {modified}");
    let other_uid = format!(
        "Operation cannot be fulfilled on configmaps \"a\": Precondition failed: UID in precondition: x, UID in object meta: {uid}"
    );
    let deleted_uid = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x) does not match the UID in record ({uid}). \
         The object might have been deleted and then recreated"
    );
    let namespace_mismatch = "the namespace of the provided object does not match the namespace sent on the request";
    let cases = [
        (format!("GET {MAPS}/b"), Value::Null, 404, "NotFound", "configmaps \"b\" not found".to_owned()),
        (format!("GET {MODELS}/b"), Value::Null, 404, "NotFound", "models.agents.recif.dev \"b\" not found".into()),
        (format!("DELETE {MAPS}/b"), Value::Null, 404, "NotFound", "configmaps \"b\" not found".into()),
        (format!("PUT {MAPS}/b"), map("b", "1"), 404, "NotFound", "configmaps \"b\" not found".into()),
        (format!("POST {MAPS}"), map("a", "2"), 409, "AlreadyExists", "configmaps \"a\" already exists".into()),
        (format!("POST {}", MAPS.replace("default", "no")), map("a", "1"), 404, "NotFound", "namespaces \"no\" not found".into()),
        (format!("PUT {MAPS}/a"), with(&created, "resourceVersion", "1".into()), 409, "Conflict", conflict),
        (format!("PUT {MAPS}/a"), with(&created, "uid", "x".into()), 409, "Conflict", other_uid),
        (format!("DELETE {MAPS}/a"), json!({ "preconditions": { "uid": "x" } }), 409, "Conflict", deleted_uid),
        (
            format!("PUT {MODELS}/a"),
            with(&custom, "resourceVersion", Value::Null),
            422,
            "Invalid",
            "models.agents.recif.dev \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update".into(),
        ),
        (
            format!("PUT {MAPS}/b"),
            created.clone(),
            400,
            "BadRequest",
            "the name of the object (a) does not match the name on the URL (b)".into(),
        ),
        (format!("POST {MAPS}"), with(&map("c", ""), "namespace", "x".into()), 400, "BadRequest", namespace_mismatch.into()),
        (
            format!("POST {MAPS}"),
            json!({ "metadata": {} }),
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required".into(),
        ),
        (
            format!("POST {MODELS}"),
            json!({
                "apiVersion": "agents.recif.dev/v1", "kind": "Model", "metadata": { "name": "c" },
                "spec": { "model": "m", "provider": "p" },
            }),
            422,
            "Invalid",
            "Model.agents.recif.dev \"c\" is invalid: [spec.pluginConfigRef: Required value, <nil>: Invalid value: null: some \
             validation rules were not checked"
                .into(),
        ),
        (
            format!("POST {MAPS}?dryRun=Some"),
            map("c", ""),
            422,
            "Invalid",
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"".into(),
        ),
        (
            format!("POST {MODELS}?fieldValidation=Strict"),
            { let mut model = model("c"); model["spec"]["x"] = 1.into(); model },
            400,
            "BadRequest",
            "Model in version \"v1\" cannot be handled as a Model: strict decoding error: unknown field \"spec.x\"".into(),
        ),
        (
            "POST /api/v1/configmaps".to_owned(),
            map("c", ""),
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".into(),
        ),
        (
            format!("GET {MAPS}?fieldSelector=spec.x=1"),
            Value::Null,
            400,
            "BadRequest",
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".into(),
        ),
        (
            format!("GET {MAPS}?resourceVersion=999999"),
            Value::Null,
            504,
            "Timeout",
            "Timeout: Too large resource version: 999999, current: ".into(),
        ),
    ];
    for (request, body, code, reason, message) in cases {
        let (found, status) = call(&server, &request, body).await;
        assert_eq!(
            (found, &status["reason"], &status["code"]),
            (code, &json!(reason), &json!(code)),
            "{request} {status}"
        );
        assert!(status["message"].as_str().unwrap().starts_with(&message), "{request}: {}", status["message"]);
        assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")));
    }
    assert_eq!(
        call(&server, &format!("GET {MAPS}/a"), Value::Null).await.1,
        created,
        "nothing of it changed the object"
    );
    assert_eq!(send(&server, &format!("PATCH {MAPS}/a"), "text/plain", "{}").await.0, 415);
    assert_eq!(call(&server, "GET /apis/x/v1/y", Value::Null).await, (404, json!("404 page not found\n")));
}

#[tokio::test]
async fn a_dry_run_answers_as_the_write_and_keeps_nothing() {
    let server = server();
    let (code, _) = call(&server, &format!("POST {MAPS}?dryRun=All"), map("a", "1")).await;
    assert_eq!((code, call(&server, &format!("GET {MAPS}/a"), Value::Null).await.0), (201, 404));
    let (_, created) = call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    let (_, answer) = patch(&server, &format!("{MAPS}/a?dryRun=All"), MERGE, json!({ "data": { "k": "2" } })).await;
    assert_eq!(answer["data"]["k"], "2");
    let apply = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": "3" } });
    let path = format!("{MAPS}/a?dryRun=All&fieldManager=m&force=true");
    assert_eq!(patch(&server, &path, APPLY, apply).await.1["data"]["k"], "3");
    assert_eq!(call(&server, &format!("DELETE {MAPS}/a?dryRun=All"), Value::Null).await.0, 200);
    assert_eq!(call(&server, &format!("GET {MAPS}/a"), Value::Null).await, (200, created));
}

#[tokio::test]
async fn names_are_generated() {
    let server = server();
    let body = json!({ "metadata": { "generateName": "a-" } });
    let (_, one) = call(&server, &format!("POST {MAPS}"), body.clone()).await;
    let (_, other) = call(&server, &format!("POST {MAPS}"), body).await;
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(&one).starts_with("a-") && name(&one).len() == 7 && name(&one) != name(&other));
}

#[tokio::test]
async fn spec_and_status_are_written_apart_and_only_the_spec_has_generations() {
    let server = server();
    let mut body = model("a");
    body["status"] = json!({ "phase": "Available" });
    let (_, created) = call(&server, &format!("POST {MODELS}"), body).await;
    assert_eq!((&created["status"]["phase"], &created["metadata"]["generation"]), (&json!("Pending"), &json!(1)));
    let both =
        json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "model": "n" }, "status": { "phase": "Error" } });
    let (_, spec) = patch(&server, &format!("{MODELS}/a"), MERGE, both.clone()).await;
    assert_eq!((&spec["spec"]["model"], &spec["metadata"]["generation"]), (&json!("n"), &json!(2)));
    assert_eq!(spec["status"]["phase"], "Pending");
    let other =
        json!({ "metadata": { "labels": { "a": "c" } }, "spec": { "model": "o" }, "status": { "phase": "Error" } });
    let (_, status) = patch(&server, &format!("{MODELS}/a/status"), MERGE, other).await;
    assert_eq!((&status["status"]["phase"], &status["metadata"]["generation"]), (&json!("Error"), &json!(2)));
    assert_eq!((&status["spec"]["model"], &status["metadata"]["labels"]["a"]), (&json!("n"), &json!("b")));
    let owner =
        status["metadata"]["managedFields"].as_array().unwrap().iter().find(|entry| entry["subresource"] == "status");
    assert_eq!(owner.unwrap()["fieldsV1"], json!({ "f:status": { "f:phase": {} } }));
}

#[tokio::test]
async fn a_json_patch_takes_null_as_missing_and_fails_as_a_whole_without_causes() {
    let server = server();
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    let path = format!("{MAPS}/a");
    let add = json!({ "op": "add", "path": "/data/l", "value": "2" });
    let test = |path: &str, value: Value| json!({ "op": "test", "path": path, "value": value });
    let (code, _) = patch(&server, &path, JSON, json!([test("/data/l", Value::Null), add])).await;
    assert_eq!(code, 200);
    for failing in [test("/data/l", Value::Null), test("/data/k", "2".into()), test("/nothing/x", Value::Null)] {
        let steps = json!([{ "op": "remove", "path": "/data/k" }, failing]);
        let (code, status) = patch(&server, &path, JSON, steps).await;
        assert_eq!((code, &status["reason"], &status["details"]), (422, &json!("Invalid"), &json!({})));
        assert_eq!(status["message"], "the server rejected our request due to an error in our request");
    }
    assert_eq!(call(&server, &format!("GET {path}"), Value::Null).await.1["data"], json!({ "k": "1", "l": "2" }));
}

#[tokio::test]
async fn a_body_and_what_a_patch_copies_have_at_most_3_mib() {
    let server = server();
    let (mib, limit) = (1024 * 1024, 3 * 1024 * 1024);
    let empty = map("a", "").to_string().len();
    let (code, status) = call(&server, &format!("POST {MAPS}"), map("a", &"x".repeat(limit - empty + 1))).await;
    let message = json!("Request entity is too large: limit is 3145728");
    assert_eq!((code, &status["reason"], &status["message"]), (413, &json!("RequestEntityTooLarge"), &message));
    assert_eq!(call(&server, &format!("POST {MAPS}?dryRun=All"), map("a", &"x".repeat(limit - empty))).await.0, 201);

    call(&server, &format!("POST {MAPS}"), map("a", &"x".repeat(mib - 2))).await;
    let copies = |count: usize| {
        let copy = |index| json!({ "op": "copy", "from": "/data/k", "path": format!("/data/l{index}") });
        (0..count).map(copy).collect::<Value>()
    };
    let path = format!("{MAPS}/a?dryRun=All");
    assert_eq!(patch(&server, &path, JSON, copies(4)).await.0, 422);
    assert_eq!(patch(&server, &path, JSON, copies(3)).await.0, 200);
    let too_many = (0..=10_000).map(|_| json!({ "op": "test", "path": "/kind", "value": "ConfigMap" })).collect();
    assert_eq!(patch(&server, &path, JSON, too_many).await.0, 413);
}

#[tokio::test]
async fn a_strategic_patch_is_of_maps_only() {
    let server = server();
    call(&server, &format!("POST {DEPLOYMENTS}"), deployment("a")).await;
    let strategic = "application/strategic-merge-patch+json";
    let annotations = json!({ "spec": { "template": { "metadata": { "annotations": { "a": "b" } } } } });
    let (code, object) = patch(&server, &format!("{DEPLOYMENTS}/a"), strategic, annotations).await;
    assert_eq!((code, &object["metadata"]["generation"]), (200, &json!(2)));
    let list = json!({ "spec": { "template": { "spec": { "containers": [] } } } });
    assert_eq!(patch(&server, &format!("{DEPLOYMENTS}/a"), strategic, list).await.0, 415);
    call(&server, &format!("POST {MODELS}"), model("a")).await;
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(patch(&server, &format!("{MODELS}/a"), strategic, labels).await.0, 415, "not of custom resources");
}

/// Returns a scale.
fn scale_of(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name }, "spec": { "replicas": replicas },
    })
}

#[tokio::test]
async fn the_scale_of_a_deployment_is_its_replicas() {
    let server = server();
    let (_, created) = call(&server, &format!("POST {DEPLOYMENTS}"), deployment("a")).await;
    assert_eq!(created["spec"]["replicas"], 1);
    let (code, scale) = call(&server, &format!("GET {DEPLOYMENTS}/a/scale"), Value::Null).await;
    assert_eq!((code, &scale["kind"], &scale["status"]["selector"]), (200, &json!("Scale"), &json!("app=a")));
    let (code, scale) =
        patch(&server, &format!("{DEPLOYMENTS}/a/scale"), MERGE, json!({ "spec": { "replicas": 3 } })).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(3)));
    let (code, status) = call(&server, &format!("PUT {DEPLOYMENTS}/a/scale"), scale_of("a", -1)).await;
    assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("spec.replicas")));
    let mut of_another_kind = scale_of("a", 1);
    of_another_kind["kind"] = "Deployment".into();
    let mut of_another_version = scale_of("a", 1);
    of_another_version["apiVersion"] = "autoscaling/v2".into();
    for body in [json!({}), scale_of("b", 1), of_another_kind, of_another_version] {
        assert_eq!(call(&server, &format!("PUT {DEPLOYMENTS}/a/scale"), body.clone()).await.0, 400, "{body}");
    }
    assert_eq!(call(&server, &format!("GET {DEPLOYMENTS}/a"), Value::Null).await.1["spec"]["replicas"], 3);
    let (code, scale) = call(&server, &format!("PUT {DEPLOYMENTS}/a/scale"), scale_of("a", 2)).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(2)));
}

#[tokio::test]
async fn an_event_has_two_forms() {
    let server = server();
    let core = "/api/v1/namespaces/default/events";
    let view = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": { "name": "e" }, "regarding": { "kind": "Pod", "name": "p" }, "note": "it began", "reason": "Started",
        "type": "Normal", "reportingController": "c", "reportingInstance": "i", "action": "a",
    });
    let (code, created) = call(&server, &format!("POST {view}"), event).await;
    assert_eq!((code, &created["apiVersion"], &created["note"]), (201, &json!("events.k8s.io/v1"), &json!("it began")));
    let (_, found) = call(&server, &format!("GET {core}?fieldSelector=involvedObject.name=p"), Value::Null).await;
    assert_eq!(
        (&found["items"][0]["message"], &found["items"][0]["reportingComponent"]),
        (&json!("it began"), &json!("c"))
    );
    for (path, count) in [
        (format!("{view}?fieldSelector=regarding.name=p,reason!=Killed"), 1),
        (format!("{view}?fieldSelector=regarding.name=q"), 0),
    ] {
        let (_, list) = call(&server, &format!("GET {path}"), Value::Null).await;
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{path}");
    }
    assert_eq!(call(&server, &format!("GET {core}?fieldSelector=regarding.name=p"), Value::Null).await.0, 400);
}

#[tokio::test]
async fn reviews_are_answered_and_not_kept() {
    let server = server();
    let review = |token: &str| json!({ "spec": { "token": token } });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, known) = call(&server, &format!("POST {path}"), review("known")).await;
    let user = &known["status"]["user"]["username"];
    assert_eq!(
        (code, &known["status"]["authenticated"], user),
        (201, &json!(true), &json!("system:serviceaccount:default:a"))
    );
    let (_, unknown) = call(&server, &format!("POST {path}"), review("x")).await;
    assert_ne!(unknown["status"]["authenticated"], true);
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(call(&server, &format!("POST {path}"), json!({ "spec": {} })).await.1["status"]["allowed"], true);
    assert_eq!(call(&server, &format!("GET {path}"), Value::Null).await.0, 405);
}

#[tokio::test]
async fn definitions_are_read_only() {
    let server = server();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (_, list) = call(&server, &format!("GET {path}"), Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), crds::KINDS.len());
    assert_eq!(call(&server, &format!("GET {path}/agents.agents.recif.dev"), Value::Null).await.0, 200);
    assert_eq!(call(&server, &format!("DELETE {path}/agents.agents.recif.dev"), Value::Null).await.0, 405);
}

#[tokio::test]
async fn what_a_pod_template_gets_wrong_is_named() {
    let server = server();
    let mut body = deployment("a");
    body["spec"]["template"]["metadata"]["labels"] = json!({ "app": "b" });
    body["spec"]["template"]["spec"]["containers"] = json!([
        { "name": "A", "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }, { "name": "c", "image": "i" }, { "name": "c", "image": "i" }
    ]);
    let (code, status) = call(&server, &format!("POST {DEPLOYMENTS}"), body).await;
    let fields: Vec<_> =
        status["details"]["causes"].as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    let expected = [
        "spec.template.metadata.labels",
        "spec.template.spec.containers[0].name",
        "spec.template.spec.containers[0].image",
        "spec.template.spec.containers[0].volumeMounts[0].name",
        "spec.template.spec.containers[2].name",
    ];
    assert_eq!((code, fields.as_slice()), (422, &expected[..]));
    let mut body = pod("a");
    body["spec"]["containers"][0]["ports"] = json!([{ "containerPort": "x" }]);
    assert_eq!(call(&server, &format!("POST {PODS}"), body).await.1["reason"], "BadRequest");
}

#[tokio::test]
async fn a_secrets_texts_become_its_data() {
    let server = server();
    let body = json!({ "metadata": { "name": "s" }, "stringData": { "k": "v" } });
    let (_, secret) = call(&server, "POST /api/v1/namespaces/default/secrets", body).await;
    assert_eq!((&secret["data"], &secret["type"]), (&json!({ "k": "dg==" }), &json!("Opaque")));
    assert_eq!(secret.get("stringData"), None);
}
