use axum::body::Body;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::control_plane::{
    around,
    fleet::testing::Stage,
    testing::{Database, app, app_with_history, app_with_rights},
};
use crate::store;

struct Api {
    app: App,
    router: Router,
}

impl Api {
    fn new(stage: &Stage) -> Self {
        let app = app(&stage.fleet, "");
        Self { router: router(app.clone()), app }
    }

    async fn with_history(stage: &Stage) -> (Self, Database) {
        let (app, database) = app_with_history(&stage.fleet).await;
        (Self { router: router(app.clone()), app }, database)
    }

    async fn send(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.send(Method::GET, path, &[]).await;
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&bytes(answer).await).unwrap())
    }

    async fn names(&self, path: &str) -> String {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{body}");
        let names = body["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap());
        names.collect::<Vec<_>>().join(" ")
    }
}

async fn bytes(answer: Response) -> Bytes {
    answer.into_body().collect().await.unwrap().to_bytes()
}

fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.agent("b", "one", "Running");
    stage.agent("a", "two", "Failed");
    let history = json!([
        { "seq": 3, "at": "2026-01-01T00:00:00Z", "from": "Pending", "to": "Resolving", "action": "accept", "tookMs": 2 },
        { "seq": 5, "at": "2026-01-01T00:00:02Z", "from": "Resolving", "to": "Error", "action": "check", "reason": "bad" },
    ]);
    let conditions = json!([{ "type": "Ready", "status": "False", "reason": "MissingDependency",
        "message": "Flow/gone does not exist", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    stage.put(
        "Tool",
        "a",
        "ask",
        json!({ "name": "ask", "type": "flow", "flowRef": { "name": "gone" }, "headers": { "X": "secret" } }),
        json!({ "phase": "Error", "observedGeneration": 1, "history": history, "conditions": conditions }),
    );
    let children = json!([
        { "kind": "ConfigMap", "name": "flow-config", "uid": "u1" }, { "kind": "Secret", "name": "flow-config", "uid": "u2" },
        { "kind": "Deployment", "name": "flow", "uid": "u3" }, { "kind": "Service", "name": "flow", "uid": "u4" },
    ]);
    stage.put(
        "Flow",
        "a",
        "flow",
        json!({ "prompts": [{ "prompt": { "name": "p", "content": "c" } }], "tools": [{ "name": "ask" }] }),
        json!({ "phase": "Resolving", "children": children }),
    );
    stage.put(
        "RemoteMCPServer",
        "a",
        "docs",
        json!({ "url": "http://h/mcp", "protocol": "SSE" }),
        json!({ "toolCount": 1 }),
    );
    stage.put(
        "MCPServer",
        "a",
        "files",
        json!({ "transportType": "stdio", "deployment": { "image": "i" } }),
        json!(null),
    );
    stage
}

#[tokio::test]
async fn lists_are_selected_sorted_and_paged() {
    let api = Api::new(&stage());
    for (path, expected) in [
        ("/v1/fleet", "two flow files ask docs one"),
        ("/v1/fleet?kind=Agent&kind=Tool&sort=name", "ask one two"),
        ("/v1/fleet?namespace=b", "one"),
        ("/v1/fleet?namespace=", "two flow files ask docs one"),
        ("/v1/fleet?phase=Failed&phase=Error", "two ask"),
        ("/v1/fleet?phase=none", "files docs"),
        ("/v1/fleet?q=ASK", "ask"),
        ("/v1/fleet?q=nothing", ""),
        ("/v1/agents", "two one"),
        ("/v1/agents?order=desc", "one two"),
        ("/v1/agents?limit=1", "two"),
        ("/api/v1/agents", "two one"),
        ("/v1/prompts", ""),
        ("/v1/toolservers", "files docs"),
    ] {
        assert_eq!(api.names(path).await, expected, "{path}");
    }
    let (_, first) = api.get("/v1/fleet?limit=4").await;
    let place = first["continue"].as_str().unwrap();
    assert_eq!(api.names(&format!("/v1/fleet?continue={place}")).await, "docs one");
    assert_eq!((&first["total"], &first["counts"]["Agent"]), (&json!(6), &json!({ "Failed": 1, "Running": 1 })));
    let (_, servers) = api.get("/v1/toolservers").await;
    let facts = ["toolCount", "url", "protocol", "phase"].map(|field| servers["items"][1][field].clone());
    assert_eq!(facts, [json!(1), json!("http://h/mcp"), json!("SSE"), json!(null)]);
}

#[tokio::test]
async fn a_wrong_request_is_told_what_is_wrong() {
    let api = Api::new(&stage());
    let (_, page) = api.get("/v1/fleet?limit=1").await;
    let place = page["continue"].as_str().unwrap();
    for (path, status, parameter) in [
        ("/v1/fleet?colour=red".to_owned(), 400, "colour"),
        ("/v1/agents?kind=Agent".into(), 400, "kind"),
        ("/v1/fleet?kind=Pod".into(), 400, "kind"),
        ("/v1/fleet?phase=Sleeping".into(), 400, "phase"),
        ("/v1/fleet?sort=colour".into(), 400, "sort"),
        ("/v1/fleet?order=up".into(), 400, "order"),
        ("/v1/fleet?limit=0".into(), 400, "limit"),
        ("/v1/fleet?limit=1001".into(), 400, "limit"),
        ("/v1/fleet?limit=5&limit=5".into(), 400, "limit"),
        ("/v1/fleet?continue=%21".into(), 400, "continue"),
        (format!("/v1/fleet?q=x&continue={place}"), 400, "continue"),
        (format!("/v1/agents?continue={place}"), 400, "continue"),
        ("/v1/tools/a/ask/trace?since=-1".into(), 400, "since"),
        ("/v1/tools/a/ask?pretty=1".into(), 400, "pretty"),
        ("/v1/me?x".into(), 400, "x"),
        ("/v1/pods".into(), 404, ""),
        ("/v1/tools/a/lost".into(), 404, ""),
        ("/v1/tools/a/ask/colour".into(), 404, ""),
        ("/v1/toolservers/a/lost/tools".into(), 404, ""),
        ("/v1/machines/Pod".into(), 404, ""),
        ("/v2".into(), 404, ""),
    ] {
        let answer = api.send(Method::GET, &path, &[]).await;
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{path}");
        assert_eq!(answer.status(), status, "{path}");
        let problem: Value = serde_json::from_slice(&bytes(answer).await).unwrap();
        assert_eq!(problem["status"], status, "{path}");
        assert_eq!(problem["parameter"].as_str().unwrap_or_default(), parameter, "{path}");
        assert!(!problem["detail"].as_str().unwrap().is_empty() && problem["title"].is_string(), "{path}");
    }
    let answer = api.send(Method::POST, "/v1/fleet", &[]).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["allow"]), (405, &"GET,HEAD".parse().unwrap()));
    assert_eq!(api.send(Method::GET, "/v1/fleet", &[("accept", "text/html")]).await.status(), 406);
}

#[tokio::test]
async fn what_is_known_is_not_sent_again_and_what_is_sent_is_small() {
    let mut stage = stage();
    let api = Api::new(&stage);
    for path in ["/v1/fleet", "/v1/agents/a/two", "/v1/graph", "/v1/toolservers"] {
        let first = api.send(Method::GET, path, &[]).await;
        let tag = first.headers()["etag"].to_str().unwrap().to_owned();
        assert_eq!(api.send(Method::GET, path, &[("if-none-match", &tag)]).await.status(), 304, "{path}");
        stage.agent("a", "two", "Pending");
        let changed = api.send(Method::GET, path, &[("if-none-match", &tag)]).await.status();
        assert_eq!(changed, if path == "/v1/toolservers" { 304 } else { 200 }, "{path}");
        stage.agent("a", "two", "Failed");
    }
    let head = api.send(Method::HEAD, "/v1/fleet", &[]).await;
    assert!(head.status() == 200 && bytes(head).await.is_empty());
    for coding in ["gzip", "br"] {
        let small = api.send(Method::GET, "/v1/fleet", &[("accept-encoding", coding)]).await;
        assert_eq!(small.headers()["content-encoding"], coding);
        assert!(small.headers().get_all("vary").iter().any(|vary| vary.to_str().unwrap().contains("accept-encoding")));
        assert!(bytes(small).await.len() < bytes(api.send(Method::GET, "/v1/fleet", &[]).await).await.len() / 2);
    }
    let yaml = bytes(api.send(Method::GET, "/v1/me", &[("accept", "application/yaml")]).await).await;
    assert_eq!(yaml, "auth: none\nuser: null\n");
}

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
    let record =
        stage.fleet.get(crds::Kind::find("Tool").unwrap(), &actions::machine::Key::new("a", "ask")).unwrap().record;
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
        |name: &str| crate::cluster::Head { key: actions::machine::Key::new("a", name), uid: name.into(), version: 1 };
    let seen = |map: &crate::cluster::ObjectMap<around::ConfigMapSeen>, name: &str, object: Value| {
        let seen = around::config_map(&head(name), &object.to_string()).unwrap();
        map.observe(crate::cluster::Seen::new(head(name), seen), crate::cluster::Cause::Watch);
    };
    seen(&api.app.around.config_maps, "flow-config", json!({ "data": { "flow.json": "{}" } }));
    let pod = json!({ "metadata": { "name": "flow-1", "labels": { "recif.dev/flow": "flow" } }, "status": { "phase": "Pending", "conditions":
        [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node" }] } });
    let pod = around::pod(&head("flow-1"), &pod.to_string()).unwrap();
    api.app.around.pods.observe(crate::cluster::Seen::new(head("flow-1"), pod), crate::cluster::Cause::Watch);
    let (_, children) = api.get("/v1/flows/a/flow/children").await;
    let told = children["items"].as_array().unwrap().iter();
    let told: Vec<_> =
        told.map(|child| format!("{} {}", child["kind"].as_str().unwrap(), child["state"].as_str().unwrap())).collect();
    assert_eq!(told, ["ConfigMap Applied", "Secret Applied", "Deployment Missing", "Service Applied", "Pod Pending"]);
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
    let event = around::event(&head("e"), &event.to_string()).unwrap();
    api.app.around.events.observe(crate::cluster::Seen::new(head("e"), event), crate::cluster::Cause::Watch);
    let (_, events) = api.get("/v1/flows/a/flow/events").await;
    assert_eq!(
        events["items"],
        json!([{ "type": "Normal", "reason": "Running", "message": "it runs", "count": 1,
        "firstAt": "2026-01-01T00:00:00Z", "lastAt": "2026-01-01T00:00:00Z" }])
    );
    assert_eq!(api.get("/v1/flows/a/flow/load").await.1["inFlight"], 0);
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
    given.give("alice get tools a");
    let (_, why) = get("/v1/tools/a/ask/why").await;
    assert_eq!(why["waitingFor"], json!(["Flow gone: not visible to you"]));
    given.give("alice get mcpservers a");
    assert_eq!(get("/v1/mcpservers/a/files/children").await.1["items"], json!([]));
    given.give("bob get mcpservers a");
    given.give("bob list tools a");
    let answer = api.send(Method::GET, "/v1/mcpservers/a/files/children", &[("authorization", "Bearer bob")]).await;
    let told: Value = serde_json::from_slice(&bytes(answer).await).unwrap();
    assert_eq!(told["items"][0]["name"], "files-read");
    given.give("carol list agents");
    let carol = [("authorization", "Bearer carol")];
    assert_eq!(api.send(Method::GET, "/v1/fleet?kind=Agent", &carol).await.status(), 200);
    assert_eq!(api.send(Method::GET, "/v1/fleet?kind=Tool", &carol).await.status(), 403);
}

#[tokio::test]
async fn tools_of_servers_come_with_the_path_that_calls_them() {
    let stage = stage();
    let api = Api::new(&stage);
    let text = r#"[{"name":"read","description":"reads","inputSchema":{"type":"object"},"annotations":{}}]"#;
    let key = actions::machine::Key::new("a", "files");
    stage.fleet.define(crds::Kind::find("MCPServer").unwrap(), &key, Some(text.into()));
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
async fn references_are_drawn_and_broken_ones_marked() {
    let api = Api::new(&stage());
    let (_, graph) = api.get("/v1/graph?namespace=a").await;
    assert_eq!(
        graph["edges"],
        json!([
            { "from": "Flow/a/flow", "to": "Tool/a/ask", "broken": true },
            { "from": "Tool/a/ask", "to": "Flow/a/gone", "broken": true },
        ])
    );
    let missing: Vec<_> = graph["nodes"].as_array().unwrap().iter().filter(|node| node["missing"] == true).collect();
    assert_eq!(missing, [&json!({ "kind": "Flow", "namespace": "a", "name": "gone", "phase": null, "missing": true })]);
}

#[tokio::test]
async fn who_has_not_signed_in_learns_nothing_from_metrics() {
    let api = Api::new(&stage());
    for path in ["/metrics", "/readyz", "/healthz"] {
        assert_eq!(api.get(path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn the_root_leads_to_the_ui() {
    let api = Api::new(&stage());
    let root = api.send(Method::GET, "/", &[]).await;
    assert_eq!((root.status().as_u16(), &root.headers()["location"]), (302, &"/ui/".parse().unwrap()));
    for path in ["/ui", "/ui/", "/ui/objects"] {
        let page = api.send(Method::GET, path, &[]).await;
        // Without a built UI this is a text that says so, with the same policy.
        assert!(page.headers().contains_key("content-security-policy"), "{path}: {}", page.status());
    }
}

#[tokio::test]
async fn before_every_watch_has_begun_nothing_is_answered() {
    let api = Api::new(&stage());
    api.app.synced.store(false, Relaxed);
    let answer = api.send(Method::GET, "/v1/fleet", &[]).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
}

#[tokio::test]
async fn what_the_status_forgot_comes_from_the_database() {
    let stage = stage();
    let (api, mut database) = Api::with_history(&stage).await;
    let step = |seq| store::Step {
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
    database.writer.write(&store::Batch { records, gone: Vec::new() }).await.unwrap();
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
    let ahead = store::Batch { records: vec![record("ask", &[9])], gone: Vec::new() };
    database.writer.write(&ahead).await.unwrap();
    let (_, trace) = api.get("/v1/tools/a/ask/trace?since=5").await;
    assert_eq!(seqs(&trace, "entries"), [0; 0], "where the object says nothing new, the database is not asked");
    assert_eq!(Api::new(&stage).get("/v1/transitions").await.0, 503, "without a database");
}

/// Whatever is answered is as the document says; each operation of the document is there.
#[tokio::test]
async fn answers_are_as_the_document_says() {
    let stage = stage();
    let (api, _database) = Api::with_history(&stage).await;
    let (_, document) = api.get("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), OPERATIONS.len());
    for (path, operation) in paths {
        let media = operation.pointer("/get/responses/200/content").unwrap();
        let filled = path.replace("{plural}", "tools").replace("{namespace}", "a").replace("{kind}", "Agent");
        let filled = filled.replace("{name}", if path.contains("toolservers") { "docs" } else { "ask" });
        let answer = api.send(Method::GET, &filled, &[]).await;
        assert_eq!(answer.status(), 200, "{filled}");
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        let schema = media[&kind]["schema"].clone();
        assert!(!schema.is_null(), "{filled}: {kind} is not in the document");
        if kind == "application/json" {
            let mut whole = schema;
            whole["components"] = document["components"].clone();
            let value: Value = serde_json::from_slice(&bytes(answer).await).unwrap();
            let validator = jsonschema::validator_for(&whole).unwrap();
            let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{filled}: {errors:?}");
        }
    }
}
