//! Tables and metadata alone, as kubectl and metadata clients ask for them.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Lines, MAPS, MODELS, PODS, call, get_as, map, model, pod, server};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn names(table: &Value) -> Vec<&str> {
    table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_list_is_a_table_with_the_columns_of_its_kind() {
    let server = server();
    call(&server, &format!("POST {MODELS}"), model("a")).await;
    let table = get_as(&server, MODELS, TABLE).await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(names(&table), ["Name", "Provider", "Model", "Phase", "Age", "Reason"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", "p", "m", "Pending", "0s", "Pending"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][0]["object"].get("spec"), None);
    let whole = get_as(&server, &format!("{MODELS}/a?includeObject=Object"), TABLE).await;
    assert_eq!(whole["rows"][0]["object"]["spec"]["model"], "m");
    call(&server, &format!("POST {PODS}"), pod("p")).await;
    let table = get_as(&server, PODS, TABLE).await;
    assert_eq!(names(&table), ["Name", "Ready", "Status", "Restarts", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["p", "0/1", "Pending", "0", "0s"]));
}

#[tokio::test]
async fn an_event_was_last_seen_at_the_last_of_its_times() {
    let server = server();
    let path = "/api/v1/namespaces/default/events";
    let times = json!({
        "eventTime": "2026-01-02T03:04:01.000000Z", "firstTimestamp": "2026-01-02T03:04:02Z",
        "lastTimestamp": "2026-01-02T03:04:03Z",
        "series": { "count": 2, "lastObservedTime": "2026-01-02T03:04:04.000000Z" },
    });
    for (fields, age) in [
        (&["eventTime", "firstTimestamp", "lastTimestamp", "series"][..], "1s"),
        (&["eventTime", "firstTimestamp", "lastTimestamp"], "2s"),
        (&["eventTime", "firstTimestamp"], "3s"),
        (&["eventTime"], "4s"),
        (&[], "<unknown>"),
    ] {
        let mut event = json!({
            "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod", "name": "p", "namespace": "default" },
            "reason": "R", "message": "m", "type": "Normal", "action": "a", "reportingComponent": "c", "reportingInstance": "i",
        });
        for field in fields {
            event[field] = times[field].clone();
        }
        assert_eq!(call(&server, &format!("POST {path}"), event).await.0, 201);
        for form in [path, "/apis/events.k8s.io/v1/namespaces/default/events"] {
            let table = get_as(&server, form, TABLE).await;
            assert_eq!(table["rows"][0]["cells"][0], age, "{form} {fields:?}");
        }
        call(&server, &format!("DELETE {path}/e"), Value::Null).await;
    }
}

#[tokio::test]
async fn the_first_json_of_what_is_accepted_counts() {
    let server = server();
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    let kind = async |accept: &str| get_as(&server, &format!("{MAPS}/a"), accept).await["kind"].clone();
    let protobuf = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(kind(&format!("{protobuf},application/json")).await, "ConfigMap");
    assert_eq!(kind(&format!("{protobuf},{TABLE}")).await, "Table");
    assert_eq!(kind("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").await, "PartialObjectMetadata");
    assert_eq!(kind("*/*").await, "ConfigMap");
    let list = get_as(&server, MAPS, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").await;
    assert_eq!((&list["kind"], list["items"][0].get("data")), (&json!("PartialObjectMetadataList"), None));
}

#[tokio::test(start_paused = true)]
async fn events_and_bookmarks_of_a_watch_are_tables_too() {
    let server = server();
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    let target = format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=5");
    let mut lines = Lines::open_as(&server, &target, TABLE).await;
    let first = lines.next().await.unwrap();
    assert_eq!((&first["type"], names(&first["object"])), (&json!("ADDED"), vec!["Name", "Data", "Age"]));
    assert_eq!(first["object"]["rows"][0]["cells"], json!(["a", 1, "0s"]));
    let bookmark = lines.next().await.unwrap();
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Table")));
    let version = &first["object"]["rows"][0]["object"]["metadata"]["resourceVersion"];
    assert_eq!(&bookmark["object"]["rows"][0]["object"]["metadata"]["resourceVersion"], version);
    assert_eq!(bookmark["object"]["columnDefinitions"], Value::Null, "the columns were sent already");
}
