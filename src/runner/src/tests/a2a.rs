//! A2A over HTTP: tasks and error responses, as a client sees them.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::Runner;
use crate::caller::CallerKey;
use crate::models::{Chunk, Model, ModelError, ModelErrorKind, ModelRequest};
use crate::usage::UsageAccount;

/// Model that says `one`, waits for the gate, says `two`; notifies `dropped` when its stream is dropped.
pub(super) struct Gated {
    pub(super) gate: Arc<Notify>,
    pub(super) dropped: mpsc::UnboundedSender<()>,
}

struct Guard(mpsc::UnboundedSender<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[async_trait]
impl Model for Gated {
    fn respond(&self, _: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (gate, guard) = (self.gate.clone(), Guard(self.dropped.clone()));
        let after = stream::once(async move {
            gate.notified().await;
            drop(guard);
            Ok(Chunk::Token("two".into()))
        });
        stream::iter([Ok(Chunk::Token("one ".into()))]).chain(after).boxed()
    }

    async fn title(&self, _: &str, _: Option<CallerKey>, _: UsageAccount) -> String {
        String::new()
    }
}

async fn gated() -> (Runner, Arc<Notify>, mpsc::UnboundedReceiver<()>) {
    let (dropped, drops) = mpsc::unbounded_channel();
    let gate = Arc::new(Notify::new());
    (Runner::with_model(Gated { gate: gate.clone(), dropped }).await, gate, drops)
}

impl Runner {
    /// Returns the response to a JSON-RPC request.
    async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": "1", "method": method, "params": params });
        let response = self.client.post(self.url("/")).body(body.to_string()).send().await.unwrap();
        let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("1")));
        answer
    }

    /// Opens a stream and waits for its header.
    async fn open(&self, method: &str, params: Value) -> reqwest::Response {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let response = self.client.post(self.url("/")).body(body.to_string()).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response
    }

    async fn stream(&self, method: &str, params: Value) -> Vec<Value> {
        results(self.open(method, params).await).await
    }
}

/// Collects the results in a stream's events, up to its end.
pub(super) async fn results(response: reqwest::Response) -> Vec<Value> {
    let text = response.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    events.inspect(|event| assert_eq!(event["id"], 7)).map(|mut event| event["result"].take()).collect()
}

pub(super) fn message(text: &str) -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

pub(super) fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

#[tokio::test]
async fn the_card_has_the_address_of_the_gateway() {
    let runner = Runner::with(&[("CORAIL_AGENT_NAME", "shop".into())]).await;
    let request = runner.client.get(runner.url("/.well-known/agent-card.json"));
    let request = request.header("x-forwarded-proto", "https").header("x-forwarded-host", "gw.example");
    let response = request.header("x-forwarded-prefix", "/v1/agents/ns/shop").send().await.unwrap();
    let card: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!(card["name"], "shop");
    assert_eq!(card["url"], "https://gw.example/v1/agents/ns/shop/");
    assert_eq!(card["supportedInterfaces"][0]["url"], card["url"]);
    assert_eq!(card["capabilities"]["streaming"], true);

    let (_, own) = runner.get("/.well-known/agent-card.json").await;
    assert!(own.contains(&format!("\"url\":\"http://{}/\"", runner.address)), "{own}");
}

#[tokio::test]
async fn the_card_says_what_the_spec_says_of_the_agent() {
    let skills = json!([{ "id": "find", "name": "Find", "tags": ["search"] }]);
    let set = json!({ "description": "Sells pens.", "skills": skills }).to_string();
    let runner = Runner::with(&[("CORAIL_AGENT_CARD", set)]).await;
    let (_, card) = runner.get("/.well-known/agent-card.json").await;
    let card: Value = serde_json::from_str(&card).unwrap();
    assert_eq!((&card["description"], &card["skills"][0]["id"]), (&json!("Sells pens."), &json!("find")));
}

#[tokio::test]
async fn a_context_is_a_conversation() {
    let runner = Runner::with(&[]).await;
    let first = runner.rpc("SendMessage", message("hello")).await["result"]["task"].take();
    assert_eq!(state(&first), "TASK_STATE_COMPLETED");
    assert_eq!(first["artifacts"][0]["parts"], json!([{ "text": "echo: hello" }]));
    assert_eq!(first["history"][0]["parts"], json!([{ "text": "hello" }]));

    let mut next = message("again");
    next["message"]["contextId"] = first["contextId"].clone();
    let second = runner.rpc("SendMessage", next).await["result"]["task"].take();
    assert_eq!(second["contextId"], first["contextId"]);
    assert_ne!(second["id"], first["id"]);
    let chat = json!({ "message": "on", "conversation_id": first["contextId"] });
    let (_, chat) = runner.chat(chat).await;
    assert_eq!(chat.get("title"), None, "the conversation was there: {chat}");

    let shown = runner.rpc("GetTask", json!({ "id": first["id"], "historyLength": 0 })).await["result"].take();
    assert_eq!((&shown["artifacts"], shown.get("history")), (&first["artifacts"], None));
    let old = runner.rpc("tasks/get", json!({ "id": first["id"] })).await["result"].take();
    assert_eq!((&old["kind"], state(&old)), (&json!("task"), "completed"));
}

#[tokio::test]
async fn a_stream_begins_with_the_task_and_ends_with_its_end() {
    let runner = Runner::with(&[]).await;
    let events = runner.stream("SendStreamingMessage", message("hello there")).await;
    assert!(events.len() > 1);
    assert!(events[0]["task"]["id"].is_string(), "{}", events[0]);
    let mut text = events[0]["task"]["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
    for event in events.iter().filter_map(|event| event.get("artifactUpdate")) {
        assert_eq!(event["append"], !text.is_empty());
        text.push_str(event["artifact"]["parts"][0]["text"].as_str().unwrap());
    }
    assert_eq!(text, "echo: hello there");
    let last = &events.last().unwrap()["statusUpdate"];
    assert_eq!((state(last), &last["taskId"]), ("TASK_STATE_COMPLETED", &events[0]["task"]["id"]));

    let sentence =
        json!({ "messageId": "m", "role": "user", "kind": "message", "parts": [{ "kind": "text", "text": "a" }] });
    let events = runner.stream("message/stream", json!({ "message": sentence })).await;
    let last = events.last().unwrap();
    assert_eq!((&last["kind"], &last["final"], state(last)), (&json!("status-update"), &json!(true), "completed"));
}

#[tokio::test]
async fn a_task_is_followed_and_goes_on_without_its_client() {
    let (runner, gate, _drops) = gated().await;
    let mut at_once = message("go");
    at_once["configuration"] = json!({ "returnImmediately": true });
    let task = runner.rpc("SendMessage", at_once).await["result"]["task"].take();
    assert_eq!(state(&task), "TASK_STATE_WORKING");
    let about = json!({ "id": task["id"] });
    drop(runner.open("SubscribeToTask", about.clone()).await);
    let following = runner.open("SubscribeToTask", about.clone()).await;
    gate.notify_one();
    let events = results(following).await;
    assert_eq!(state(&events.last().unwrap()["statusUpdate"]), "TASK_STATE_COMPLETED");
    let done = runner.rpc("GetTask", about.clone()).await["result"].take();
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "one two");
    assert_eq!(runner.rpc("SubscribeToTask", about).await["error"]["code"], -32004);
}

#[tokio::test]
async fn canceling_stops_the_model_and_forgets_the_turn() {
    let (runner, gate, mut drops) = gated().await;
    let mut at_once = message("go");
    at_once["configuration"] = json!({ "returnImmediately": true });
    let task = runner.rpc("SendMessage", at_once).await["result"]["task"].take();
    let about = json!({ "id": task["id"] });
    while !runner.rpc("GetTask", about.clone()).await["result"]["artifacts"].is_array() {}

    let canceled = runner.rpc("CancelTask", about.clone()).await["result"].take();
    assert_eq!(state(&canceled), "TASK_STATE_CANCELED");
    drops.recv().await.unwrap();
    let again = runner.rpc("CancelTask", about.clone()).await["error"].take();
    assert_eq!((&again["code"], &again["data"][0]["reason"]), (&json!(-32002), &json!("TASK_NOT_CANCELABLE")));
    assert_eq!(runner.rpc("tasks/cancel", about).await["error"]["code"], -32002);

    gate.notify_one();
    let (status, chat) = runner.chat(json!({ "message": "a", "conversation_id": task["contextId"] })).await;
    assert_eq!(status, 404, "the turn left no conversation: {chat}");
    let mut next = message("again");
    next["message"]["contextId"] = task["contextId"].clone();
    gate.notify_one();
    let next = runner.rpc("SendMessage", next).await["result"]["task"].take();
    assert_eq!((state(&next), &next["contextId"]), ("TASK_STATE_COMPLETED", &task["contextId"]), "its task knows it");
}

/// Model that always fails.
struct Asleep;

#[async_trait]
impl Model for Asleep {
    fn respond(&self, _: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        stream::iter([Err(ModelError::new(ModelErrorKind::Unavailable, "it is asleep"))]).boxed()
    }

    async fn title(&self, _: &str, _: Option<CallerKey>, _: UsageAccount) -> String {
        String::new()
    }
}

#[tokio::test]
async fn a_model_that_fails_makes_the_task_fail() {
    let runner = Runner::with_model(Asleep).await;
    let task = runner.rpc("SendMessage", message("hi")).await["result"]["task"].take();
    assert_eq!(state(&task), "TASK_STATE_FAILED");
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "the model did not answer: it is asleep");
}

#[tokio::test]
async fn what_cannot_be_done_has_the_code_for_it() {
    let runner = Runner::with(&[]).await;
    let done = runner.rpc("SendMessage", message("hi")).await["result"]["task"].take();
    let with = |name: &str, value: &Value| {
        let mut message = message("hi");
        message["message"][name] = value.clone();
        message
    };
    let never = "00000000000000000000000000000000";
    let mut other = with("taskId", &done["id"]);
    other["message"]["contextId"] = "elsewhere".into();
    for (method, params, code) in [
        ("Nothing", json!({}), -32601),
        ("SendMessage", json!({}), -32602),
        ("SendStreamingMessage", json!({ "message": "hi" }), -32602),
        ("SendMessage", with("contextId", &"a b".into()), -32602),
        ("SendMessage", with("contextId", &never.into()), -32602),
        ("SendMessage", with("taskId", &"unknown".into()), -32001),
        ("SendMessage", with("taskId", &done["id"]), -32004),
        ("SendMessage", other, -32602),
        ("SendMessage", with("parts", &json!([{ "url": "http://a" }])), -32005),
        ("GetTask", json!({ "id": "unknown" }), -32001),
        ("GetTask", json!({ "id": 1 }), -32602),
        ("tasks/get", json!({ "id": "unknown" }), -32001),
        ("CancelTask", json!({ "id": "unknown" }), -32001),
        ("CancelTask", json!({ "id": done["id"] }), -32002),
        ("SubscribeToTask", json!({ "id": "unknown" }), -32001),
        ("ListTasks", json!({}), -32004),
        ("GetExtendedAgentCard", json!({}), -32004),
        ("CreateTaskPushNotificationConfig", json!({}), -32003),
    ] {
        let error = runner.rpc(method, params.clone()).await["error"].take();
        assert_eq!(error["code"], code, "{method} {params}: {error}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let missing = runner.rpc("GetTask", json!({ "id": "unknown" })).await["error"].take();
    let advice = "unknown task `unknown`: held by another replica or gone: set storage to postgresql";
    assert_eq!(missing["message"], advice);
    let unready = Runner::with(&[("CORAIL_MODEL_TYPE", "nothing".into())]).await;
    let missing = unready.rpc("GetTask", json!({ "id": "unknown" })).await["error"].take();
    assert_eq!(missing["message"], "unknown task `unknown`: not found or gone", "its storage is not known");
}

#[tokio::test]
async fn a_card_is_kept_by_its_tag() {
    let runner = Runner::with(&[]).await;
    let card = async |tag: &str| {
        let request = runner.client.get(runner.url("/.well-known/agent-card.json"));
        request.header("if-none-match", tag).send().await.unwrap()
    };
    let first = card("\"other\"").await;
    assert_eq!(
        (first.status().as_u16(), &first.headers()["cache-control"]),
        (200, &"private, max-age=60".parse().unwrap())
    );
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    let again = card(&format!("\"x\", {tag}")).await;
    assert_eq!((again.status().as_u16(), again.headers()["etag"].to_str().unwrap()), (304, tag.as_str()));
}

#[tokio::test]
async fn a_body_that_is_no_json_by_its_type_is_refused_as_a2a_wants() {
    let runner = Runner::with(&[]).await;
    for (kind, code) in
        [("text/plain", -32005), ("application/json; charset=utf-8", -32001), ("application/a2a+json", -32001)]
    {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": "x" } });
        let request = runner.client.post(runner.url("/")).header("content-type", kind).body(body.to_string());
        let answer: Value = serde_json::from_slice(&request.send().await.unwrap().bytes().await.unwrap()).unwrap();
        assert_eq!(answer["error"]["code"], code, "{kind}: {answer}");
    }
}

#[tokio::test]
async fn tasks_and_conversations_are_their_users_alone() {
    let runner = Runner::with(&[]).await;
    let rpc = async |user: &str, method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = runner.client.post(runner.url("/")).body(body.to_string());
        if !user.is_empty() {
            request = request.header("x-recif-user", user);
        }
        serde_json::from_slice::<Value>(&request.send().await.unwrap().bytes().await.unwrap()).unwrap()
    };
    let task = rpc("alice", "SendMessage", message("my pin is 4711")).await["result"]["task"].take();
    let mut next = message("what is it?");
    next["message"]["contextId"] = task["contextId"].clone();
    for other in ["mallory", ""] {
        assert_eq!(rpc(other, "GetTask", json!({ "id": task["id"] })).await["error"]["code"], -32001);
        assert_eq!(rpc(other, "CancelTask", json!({ "id": task["id"] })).await["error"]["code"], -32001);
        assert_eq!(rpc(other, "SendMessage", next.clone()).await["error"]["code"], -32602);
        let listed = rpc(other, "ListTasks", json!({ "contextId": task["contextId"] })).await;
        assert_eq!(listed["result"]["tasks"], json!([]), "{listed}");
    }
    assert_eq!(rpc("", "ListTasks", json!({})).await["error"]["code"], -32004);
    assert_eq!(state(&rpc("alice", "SendMessage", next).await["result"]["task"]), "TASK_STATE_COMPLETED");

    let page = rpc("alice", "ListTasks", json!({ "pageSize": 1 })).await["result"].take();
    assert_eq!((&page["totalSize"], page["tasks"].as_array().unwrap().len()), (&json!(2), 1));
    assert_eq!((page["tasks"][0].get("artifacts"), &page["pageSize"]), (None, &json!(1)));
    let rest = json!({ "pageSize": 1, "pageToken": page["nextPageToken"], "includeArtifacts": true });
    let rest = rpc("alice", "ListTasks", rest).await["result"].take();
    assert_eq!((&rest["nextPageToken"], &rest["tasks"][0]["id"]), (&json!(""), &task["id"]));
    assert!(rest["tasks"][0]["artifacts"].is_array());
    let failed = rpc("alice", "ListTasks", json!({ "status": "TASK_STATE_FAILED" })).await["result"].take();
    assert_eq!(failed["totalSize"], 0);
}

#[tokio::test]
async fn a_body_that_is_no_request_is_answered_as_json_rpc_wants() {
    let runner = Runner::with(&[]).await;
    let big = format!("\"{}\"", "x".repeat(1 << 20));
    for (body, version, status, code) in [
        ("{", "", 200, -32700),
        ("[]", "", 200, -32600),
        (r#"{"jsonrpc":"2.0","method":"GetTask","params":{"id":"x"}}"#, "", 200, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"GetTask","params":{"id":"x"}}"#, "", 200, -32600),
        (r#"{"jsonrpc":"2.0","id":true,"method":"GetTask","params":{"id":"x"}}"#, "", 200, -32600),
        (r#"{"jsonrpc":"2.0","method":"GetTask"}"#, "", 200, -32602),
        (r#"{"jsonrpc":"2.0","method":"Nothing"}"#, "", 200, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}"#, "0.3", 200, -32009),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}"#, "1.0", 200, -32001),
        (&big, "", 413, -32600),
    ] {
        let request = runner.client.post(runner.url("/")).header("a2a-version", version).body(body.to_owned());
        let response = request.send().await.unwrap();
        let found = response.status().as_u16();
        let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
    }
    let unready = Runner::with(&[("CORAIL_MODEL_TYPE", "nothing".into())]).await;
    let response = unready.client.post(unready.url("/"));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("hi") });
    let response = response.body(body.to_string()).send().await.unwrap();
    assert_eq!(response.status(), 503);
    let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("unknown model provider `nothing`"), "{answer}");
    let (status, _) = runner.get("/").await;
    assert_eq!(status, 405);
}
