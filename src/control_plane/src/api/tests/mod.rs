//! Tests of the API over a few objects.

use axum::body::Body;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{
    fleet::testing::TestFleet,
    testing::{TemporaryDatabase, app, app_with_history},
};

mod lists;
mod objects;
mod requests;

struct Api {
    app: SharedAppState,
    router: Router,
}

impl Api {
    fn new(stage: &TestFleet) -> Self {
        let app = app(&stage.fleet, "");
        Self { router: router(app.clone()), app }
    }

    async fn with_history(stage: &TestFleet) -> (Self, TemporaryDatabase) {
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

fn stage() -> TestFleet {
    let mut stage = TestFleet::new();
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
