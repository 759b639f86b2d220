//! Tests of responses about one object, and of the rights that they need.

use http::Method;
use serde_json::{Value, json};

use super::{Api, bytes, stage};
use crate::{api::router, related, testing::app_with_rights};

#[tokio::test]
async fn an_object_is_shown_with_its_credentials_masked() {
    let api = Api::new(&stage());
    let (_, tool) = api.get("/v1/tools/a/ask").await;
    assert_eq!(tool["apiVersion"], "agents.recif.dev/v1");
    assert_eq!((&tool["kind"], &tool["spec"]["type"]), (&json!("Tool"), &json!("flow")));
    assert!(!tool.to_string().contains("secret"), "{tool}");
    assert_eq!(api.get("/v1/tools/a/ask/status").await.1, tool["status"]);
    let (_, unseen) = api.get("/v1/mcpservers/a/files").await;
    assert_eq!(unseen["status"], Value::Null);
}

#[tokio::test]
async fn an_object_says_why_as_the_command_does() {
    let stage = stage();
    let api = Api::new(&stage);
    let (_, why) = api.get("/v1/tools/a/ask/why").await;
    let record = stage.fleet.get(crds::ApiKind::find("Tool").unwrap(), &meta::Key::new("a", "ask")).unwrap().record;
    let metadata = serde_json::from_value(record.object()["metadata"].take()).unwrap();
    let expected = crds::why::why("Tool", &metadata, record.status().as_ref());
    assert_eq!(why["sentence"], expected.sentence);
    assert_eq!(why["condition"]["reason"], "MissingDependency");
    assert_eq!(why["waitingFor"], json!(["Flow gone: does not exist"]));
    assert_eq!(why["steps"].as_array().unwrap().len(), 2);
    let (_, trace) = api.get("/v1/tools/a/ask/trace").await;
    assert_eq!(trace["gaps"], json!([[1, 2], [4, 4]]));
    assert_eq!(
        trace["entries"][1],
        json!({ "seq": 5, "at": "2026-01-01T00:00:02Z", "from": "Resolving", "to": "Error",
        "action": "check", "reason": "bad", "tookMs": 0, "traceId": "" })
    );
    assert_eq!(api.get("/v1/tools/a/ask/trace?since=3").await.1["entries"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_hangs_on_an_object_is_shown() {
    let api = Api::new(&stage());
    let head =
        |name: &str| cluster::ObjectVersion { key: meta::Key::new("a", name), uid: name.into(), resource_version: 1 };
    let seen = |map: &cluster::ObjectMap<related::ConfigMapRecord>, name: &str, object: Value| {
        let seen = related::config_map(&head(name), &object.to_string()).unwrap();
        map.observe(cluster::Versioned::new(head(name), seen), cluster::ChangeSource::Watch);
    };
    seen(&api.app.related.config_maps, "flow-config", json!({ "data": { "flow.json": "{}" } }));
    let pod = json!({ "metadata": { "name": "flow-1", "labels": { "recif.dev/flow": "flow" } }, "status": { "phase": "Pending", "conditions":
        [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node" }] } });
    let pod = related::pod(&head("flow-1"), &pod.to_string()).unwrap();
    api.app.related.pods.observe(cluster::Versioned::new(head("flow-1"), pod), cluster::ChangeSource::Watch);
    let (_, children) = api.get("/v1/flows/a/flow/children").await;
    let reported = children["items"].as_array().unwrap().iter();
    let reported: Vec<_> = reported
        .map(|child| format!("{} {}", child["kind"].as_str().unwrap(), child["state"].as_str().unwrap()))
        .collect();
    assert_eq!(
        reported,
        ["ConfigMap Applied", "Secret Applied", "Deployment Missing", "Service Applied", "Pod Pending"]
    );
    let (_, why) = api.get("/v1/flows/a/flow/why").await;
    assert_eq!(why["waitingFor"][1], "Pod flow-1: Unschedulable: no node");
    let (_, rendered) = api.get("/v1/flows/a/flow/rendered").await;
    assert_eq!(
        rendered["files"],
        json!([
            { "object": "ConfigMap/flow-config", "name": "flow.json", "text": "{}" },
            { "object": "Secret/flow-config", "name": "*", "text": "••••••" },
        ])
    );
    let event = json!({ "regarding": { "uid": "a-flow" }, "type": "Normal", "reason": "Running", "note": "it runs",
        "eventTime": "2026-01-01T00:00:00.000000Z" });
    let event = related::event(&head("e"), &event.to_string()).unwrap();
    api.app.related.events.observe(cluster::Versioned::new(head("e"), event), cluster::ChangeSource::Watch);
    // As a kubelet reports, and the same about a Pod of another workload.
    for (name, pod) in [("w", "flow-1"), ("other", "flow-2")] {
        let warning = json!({ "regarding": { "kind": "Pod", "uid": pod }, "type": "Warning", "reason": "Unhealthy",
            "note": "probe failed: Get \"http://h/ok?token=t0p\": refused", "eventTime": null,
            "deprecatedCount": 3, "deprecatedFirstTimestamp": "2026-01-01T00:00:01Z",
            "deprecatedLastTimestamp": "2026-01-01T00:00:09Z" });
        let warning = related::event(&head(name), &warning.to_string()).unwrap();
        let warning = cluster::Versioned::new(head(name), warning);
        api.app.related.warnings.observe(warning, cluster::ChangeSource::Watch);
    }
    let (_, events) = api.get("/v1/flows/a/flow/events").await;
    assert_eq!(
        events["items"],
        json!([
            { "object": "Pod/flow-1", "type": "Warning", "reason": "Unhealthy",
                "message": "probe failed: Get \"http://h/ok?token=••••••\": refused", "count": 3,
                "firstAt": "2026-01-01T00:00:01Z", "lastAt": "2026-01-01T00:00:09Z" },
            { "object": "Flow/flow", "type": "Normal", "reason": "Running", "message": "it runs", "count": 1,
                "firstAt": "2026-01-01T00:00:00Z", "lastAt": "2026-01-01T00:00:00Z" },
        ])
    );
    assert_eq!(api.get("/v1/flows/a/flow/load").await.1["inFlight"], 0);
}

#[tokio::test]
async fn what_keeps_pods_from_being_made_is_told_by_the_warnings_about_them_and_their_replica_sets() {
    let api = Api::new(&stage());
    let head =
        |name: &str| cluster::ObjectVersion { key: meta::Key::new("a", name), uid: name.into(), resource_version: 1 };
    let owner = json!([{ "apiVersion": "agents.recif.dev/v1", "kind": "Flow", "name": "flow", "uid": "a-flow", "controller": true }]);
    let deployment = json!({ "metadata": { "name": "flow", "ownerReferences": owner }, "spec": { "replicas": 2 } });
    let deployment = related::deployment(&head("flow"), &deployment.to_string()).unwrap();
    let deployment = cluster::Versioned::new(head("flow"), deployment);
    api.app.related.deployments.observe(deployment, cluster::ChangeSource::Watch);
    let pod = json!({ "metadata": { "name": "flow-5d5d-1", "labels": { "recif.dev/flow": "flow" } }, "status": { "phase": "Pending",
        "containerStatuses": [{ "name": "flow", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ContainerCreating" } } }] } });
    let pod = related::pod(&head("flow-5d5d-1"), &pod.to_string()).unwrap();
    api.app.related.pods.observe(cluster::Versioned::new(head("flow-5d5d-1"), pod), cluster::ChangeSource::Watch);
    for (second, kind, name, reason, note) in [
        (1, "Pod", "flow-5d5d-1", "FailedCreatePodSandBox", "no address"),
        (2, "Pod", "flow-5d5d-1", "FailedMount", "secret \"keys\" not found"),
        (3, "ReplicaSet", "flow-5d5d", "FailedCreate", "exceeded quota"),
        (4, "Deployment", "flow", "ReplicaSetCreateError", "forbidden"),
        // Of a Deployment and a ReplicaSet of others.
        (5, "ReplicaSet", "flow-two-5d5d", "FailedCreate", "exceeded quota"),
        (6, "ReplicaSet", "flow-main", "FailedCreate", "exceeded quota"),
    ] {
        let warning = json!({ "regarding": { "kind": kind, "name": name, "uid": name }, "type": "Warning", "reason": reason,
            "note": note, "eventTime": format!("2026-01-01T00:00:0{second}.000000Z") });
        let head = head(format!("w{second}").as_str());
        let warning = related::event(&head, &warning.to_string()).unwrap();
        api.app.related.warnings.observe(cluster::Versioned::new(head, warning), cluster::ChangeSource::Watch);
    }
    let (_, events) = api.get("/v1/flows/a/flow/events").await;
    let items = events["items"].as_array().unwrap().iter();
    let shown: Vec<_> =
        items.map(|it| format!("{} {}", it["object"].as_str().unwrap(), it["reason"].as_str().unwrap())).collect();
    assert_eq!(
        shown,
        [
            "Deployment/flow ReplicaSetCreateError",
            "ReplicaSet/flow-5d5d FailedCreate",
            "Pod/flow-5d5d-1 FailedMount",
            "Pod/flow-5d5d-1 FailedCreatePodSandBox",
        ]
    );
    let (_, why) = api.get("/v1/flows/a/flow/why").await;
    let expected = "Pod flow-5d5d-1: FailedMount: secret \"keys\" not found";
    assert!(why["waitingFor"].as_array().unwrap().contains(&json!(expected)), "{why}");
    let (_, children) = api.get("/v1/flows/a/flow/children").await;
    let children = children["items"].as_array().unwrap();
    assert!(children.iter().any(|child| child["kind"] == "Pod" && child["message"] == expected), "{children:?}");
}

#[tokio::test]
async fn nothing_is_told_of_objects_that_the_caller_may_not_see() {
    let mut stage = stage();
    stage.owner = Some("a-files");
    stage.put("Tool", "a", "files-read", json!({ "name": "read", "type": "mcp" }), json!({ "phase": "Error" }));
    let (app, given) = app_with_rights(&stage.fleet);
    let api = Api { router: router(app.clone()), app };
    let get = async |path: &str| {
        let answer = api.send(Method::GET, path, &[("authorization", "Bearer alice")]).await;
        let status = answer.status().as_u16();
        (status, serde_json::from_slice::<Value>(&bytes(answer).await).unwrap())
    };
    for path in ["/v1/fleet", "/v1/fleet?kind=Agent", "/v1/toolservers", "/v1/graph", "/v1/agents"] {
        assert_eq!(get(path).await.0, 403, "{path}");
    }
    given.grant("alice get tools a");
    let (_, why) = get("/v1/tools/a/ask/why").await;
    assert_eq!(why["waitingFor"], json!(["Flow gone: not visible to you"]));
    let (status, around) = get("/v1/tools/a/ask/references").await;
    assert_eq!(status, 200, "{around}");
    assert_eq!(around["edges"], json!([{ "from": "Tool/a/ask", "to": "Flow/a/gone", "broken": false }]));
    assert!(around["nodes"].as_array().unwrap().iter().all(|node| node["missing"] == false), "{around}");
    assert_eq!(get("/v1/agents/a/two/references").await.0, 403);
    given.grant("dora get tools a");
    given.grant("dora list flows a");
    let answer = api.send(Method::GET, "/v1/tools/a/ask/references", &[("authorization", "Bearer dora")]).await;
    let around: Value = serde_json::from_slice(&bytes(answer).await).unwrap();
    assert_eq!(around["edges"][0]["broken"], true, "{around}");
    assert_eq!(around["edges"][1]["from"], "Flow/a/flow", "{around}");
    given.grant("alice get mcpservers a");
    assert_eq!(get("/v1/mcpservers/a/files/children").await.1["items"], json!([]));
    given.grant("bob get mcpservers a");
    given.grant("bob list tools a");
    let answer = api.send(Method::GET, "/v1/mcpservers/a/files/children", &[("authorization", "Bearer bob")]).await;
    let reported: Value = serde_json::from_slice(&bytes(answer).await).unwrap();
    assert_eq!(reported["items"][0]["name"], "files-read");
    given.grant("carol list agents");
    let carol = [("authorization", "Bearer carol")];
    assert_eq!(api.send(Method::GET, "/v1/fleet?kind=Agent", &carol).await.status(), 200);
    assert_eq!(api.send(Method::GET, "/v1/fleet?kind=Tool", &carol).await.status(), 403);
}

#[tokio::test]
async fn tools_of_servers_come_with_the_path_that_calls_them() {
    let stage = stage();
    let api = Api::new(&stage);
    let text = r#"[{"name":"read","description":"reads","inputSchema":{"type":"object"},"annotations":{}}]"#;
    let key = meta::Key::new("a", "files");
    stage.fleet.set_tools(crds::ApiKind::find("MCPServer").unwrap(), &key, Some(text.into()));
    assert_eq!(
        api.get("/v1/toolservers/a/files/tools").await.1,
        json!({
            "items": [{ "name": "read", "description": "reads", "inputSchema": { "type": "object" } }],
            "callPath": "/v1/mcp/a/files/mcp",
        })
    );
    assert_eq!(api.get("/v1/toolservers/a/docs/tools").await.1, json!({ "items": [], "callPath": null }));
    assert_eq!(api.get("/v1/toolservers/a/docs/tools?kind=MCPServer").await.0, 404);
}

#[tokio::test]
async fn what_the_status_forgot_comes_from_the_database() {
    let stage = stage();
    let (api, mut database) = Api::with_history(&stage).await;
    let step = |seq| store::TransitionRow {
        seq,
        at: jiff::Timestamp::from_second(seq).unwrap(),
        from: "Pending".into(),
        to: "Resolving".into(),
        action: "accept".into(),
        reason: String::new(),
        took_ms: 1,
        trace_id: "t".into(),
    };
    let record = |name: &str, seqs: &[i64]| store::Record {
        key: store::ObjectKey { kind: "Tool", namespace: "a".into(), name: name.into() },
        uid: format!("a-{name}"),
        version: 1,
        observed_at: jiff::Timestamp::UNIX_EPOCH,
        workload: None,
        server: None,
        steps: seqs.iter().copied().map(step).collect(),
    };
    let records = vec![record("ask", &[1, 3, 5]), record("gone", &[7])];
    database.writer.write(&store::Batch { records, deletions: Vec::new() }).await.unwrap();
    let seqs = |body: &Value, list: &str| -> Vec<i64> {
        body[list].as_array().unwrap().iter().map(|entry| entry["seq"].as_i64().unwrap()).collect()
    };
    let (_, trace) = api.get("/v1/tools/a/ask/trace").await;
    assert_eq!((seqs(&trace, "entries"), &trace["gaps"]), (vec![1, 3, 5], &json!([[2, 2], [4, 4]])));
    let (_, trace) = api.get("/v1/tools/a/ask/trace?since=1").await;
    assert_eq!((seqs(&trace, "entries"), &trace["gaps"]), (vec![3, 5], &json!([[2, 2], [4, 4]])));
    let (_, first) = api.get("/v1/transitions?limit=3").await;
    assert_eq!((seqs(&first, "items"), first["items"][0]["name"].as_str()), (vec![7, 5, 3], Some("gone")));
    let (_, second) = api.get(&format!("/v1/transitions?before={}", first["continue"].as_str().unwrap())).await;
    assert_eq!((seqs(&second, "items"), second.get("continue")), (vec![1], None));
    assert_eq!(api.get("/v1/transitions?before=x").await.1["parameter"], "before");
    let ahead = store::Batch { records: vec![record("ask", &[9])], deletions: Vec::new() };
    database.writer.write(&ahead).await.unwrap();
    let (_, trace) = api.get("/v1/tools/a/ask/trace?since=5").await;
    assert_eq!(seqs(&trace, "entries"), [0; 0], "where the object says nothing new, the database is not asked");
    let (_, trace) = api.get("/v1/tools/a/gone/trace").await;
    assert_eq!(seqs(&trace, "entries"), [7], "what is gone still has its history");
    assert_eq!(api.get("/v1/tools/a/never/trace").await.0, 404);
    assert_eq!(Api::new(&stage).get("/v1/tools/a/gone/trace").await.0, 404, "without a database");
    assert_eq!(Api::new(&stage).get("/v1/transitions").await.0, 503, "without a database");
}
