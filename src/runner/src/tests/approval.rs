//! Tools whose calls a person has to approve.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, http::HeaderMap, routing::any};
use serde_json::{Value, json};
use sqlx::{Executor, Row};
use testing::postgres::PostgresServer;
use tokio::net::TcpListener;

use super::Runner;

/// Longest wait for a sweep.
const SOON: Duration = Duration::from_secs(30);

/// Bank that counts payments.
pub(super) struct Bank {
    url: String,
    payments: Arc<AtomicUsize>,
    /// Headers of the last payment.
    headers: Arc<Mutex<HeaderMap>>,
}

impl Bank {
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, payments, headers) = (listener.local_addr().unwrap(), Arc::default(), Arc::default());
        let (counter, last): (Arc<AtomicUsize>, Arc<Mutex<HeaderMap>>) = (Arc::clone(&payments), Arc::clone(&headers));
        let pay = move |headers: HeaderMap| {
            *last.lock().unwrap() = headers;
            let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
            async move { format!("paid {number}") }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/", any(pay))).await });
        Self { url: format!("http://{address}/"), payments, headers }
    }

    pub(super) fn payments(&self) -> usize {
        self.payments.load(Ordering::SeqCst)
    }

    pub(super) fn last_key(&self) -> Option<String> {
        self.last_header("idempotency-key")
    }

    /// Returns a header of the last payment.
    pub(super) fn last_header(&self, name: &str) -> Option<String> {
        self.headers.lock().unwrap().get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    /// Returns the tools `free`, whose calls do not wait, `pay`, `set`, whose calls may be repeated, `hasty`, whose calls wait for a
    /// second, `audit`, whose calls another person has to approve, and `council`, whose calls wait for a person of another version.
    pub(super) fn tools(&self) -> Value {
        let tool = |name: &str, approval: Value| {
            let parameters = json!([{"name": "euros", "type": "integer"}]);
            let mut tool = json!({"name": name, "type": "http", "method": "POST", "endpoint": self.url});
            tool["parameters"] = parameters;
            if !approval.is_null() {
                tool["approval"] = approval;
            }
            tool
        };
        let asks = |by: &str, seconds: u64| json!({"when": "Always", "by": by, "timeout": seconds});
        let (pay, audit, hasty) = (asks("Caller", 60), asks("Approver", 60), asks("Caller", 1));
        let mut set = tool("set", pay.clone());
        set["method"] = json!("PUT");
        let council = tool("council", asks("Council", 60));
        json!([tool("free", Value::Null), tool("pay", pay), set, tool("audit", audit), tool("hasty", hasty), council])
    }

    /// Starts an agent with these tools, and conversations in a database if there is one.
    pub(super) async fn agent(&self, server: Option<&PostgresServer>) -> Runner {
        match server {
            None => self.agent_with(&[]).await,
            Some(server) => self.agent_with(&database(&server.url("postgres"))).await,
        }
    }

    /// Starts an agent with these tools and these further variables.
    pub(super) async fn agent_with(&self, more: &[(&'static str, String)]) -> Runner {
        let mut variables = vec![("CORAIL_AGENT_NAME", "shop".into()), ("CORAIL_TOOLS", self.tools().to_string())];
        for (name, value) in more {
            variables.retain(|(known, _)| known != name);
            variables.push((*name, value.clone()));
        }
        let runner = Runner::with(&variables).await;
        // Creates the tables.
        assert_eq!(runner.get("/readyz").await.0, 200);
        runner
    }
}

impl Runner {
    /// Sends a message of this user.
    pub(super) async fn chat_as(&self, user: &str, message: &str) -> (u16, Value) {
        let request = self.client.post(self.url("/chat")).header("x-recif-user", user);
        answer(request.body(json!({ "message": message }).to_string())).await
    }

    /// Sends a decision of this user; an empty name is none.
    pub(super) async fn decide(&self, user: &str, task: &Value, approvals: Value) -> (u16, Value) {
        let mut request = self.client.post(self.url(&format!("/approvals/{}", task.as_str().unwrap())));
        if !user.is_empty() {
            request = request.header("x-recif-user", user);
        }
        answer(request.body(json!({ "approvals": approvals }).to_string())).await
    }
}

pub(super) async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

/// Returns the variables for conversations in this database.
pub(super) fn database(url: &str) -> [(&'static str, String); 2] {
    [("CORAIL_STORAGE", "postgresql".into()), ("CORAIL_DATABASE_URL", url.to_owned())]
}

pub(super) fn approve(id: &str) -> Value {
    json!([{"id": id, "approved": true}])
}

pub(super) fn reject(id: &str, reason: &str) -> Value {
    json!([{"id": id, "approved": false, "rejection_reason": reason}])
}

#[tokio::test]
async fn a_call_that_nobody_can_approve_is_refused_and_the_model_is_told() {
    let bank = Bank::open().await;
    let runner = bank.agent(None).await;
    for (tool, expected) in [
        ("pay", "tool pay failed: refused: a person has to approve calls of this tool"),
        ("free", "paid 1"),
        ("audit", "tool audit failed: refused: a person has to approve calls of this tool"),
    ] {
        let messages = json!([{"role": "user", "content": format!("/tool {tool} {{}}")}]);
        let body = json!({"model": "shop", "messages": messages}).to_string();
        let (_, answer) = answer(runner.client.post(runner.url("/v1/chat/completions")).body(body)).await;
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        assert!(text.starts_with(expected), "{tool}: {answer}");
    }
    let (status, alone) = runner.chat(json!({"message": "/tool pay {}", "may_wait": false})).await;
    assert!(status == 200 && alone["reply"].as_str().unwrap().starts_with("tool pay failed: refused"), "{alone}");
    let asks = json!([{"name": "ask", "type": "agent", "endpoint": runner.url("")}]);
    let other = Runner::with_tools(asks).await.say(r#"/tool ask {"message": "/tool pay {}"}"#).await;
    assert!(other.starts_with("tool pay failed: refused"), "an agent that asks this one: {other}");
    let (status, answer) = runner.chat_as("ada", "/tool council {}").await;
    assert_eq!(status, 200, "a person that this version does not know: {answer}");
    assert!(answer["reply"].as_str().unwrap().starts_with("tool council failed: refused"), "{answer}");
    assert_eq!(bank.payments(), 1, "the call that needs no approval");
}

#[tokio::test]
async fn a_call_waits_for_its_caller_and_is_made_once() {
    let bank = Bank::open().await;
    let runner = bank.agent(None).await;
    let (status, waits) = runner.chat_as("ada", r#"/tool pay {"euros": 5}"#).await;
    assert_eq!((status, bank.payments()), (202, 0), "{waits}");
    let task = &waits["task"];
    let call = json!({"id": "call_1", "name": "pay", "args": {"euros": 5}, "args_text": "{\n  \"euros\": 5\n}"});
    assert_eq!(waits["approval"]["tools"], json!([call]));
    assert_eq!(waits["approval"]["by"], "Caller");
    assert_eq!(waits["reply"], "[waiting until you approve `pay`]", "a model that reads it cannot decide");

    let early = json!({"message": "hi", "conversation_id": waits["conversation_id"]}).to_string();
    let early = answer(runner.client.post(runner.url("/chat")).header("x-recif-user", "ada").body(early)).await;
    assert_eq!(early.0, 409, "the turn before waits: {}", early.1);
    let list = answer(runner.client.get(runner.url("/approvals")).header("x-recif-user", "ada")).await;
    let shown = json!([{
        "conversation_id": waits["conversation_id"], "user": "ada", "decided": false, "task": task,
        "approval": waits["approval"],
    }]);
    assert_eq!(list, (200, json!({ "approvals": shown.clone() })));
    let others = answer(runner.client.get(runner.url("/approvals")).header("x-recif-user", "bob")).await;
    assert_eq!(others, (200, json!({"approvals": []})));
    let (status, unnamed) = answer(runner.client.get(runner.url("/approvals"))).await;
    let error = unnamed["error"].as_str().unwrap();
    assert!(status == 403 && error.contains("`recif approve agent/NAME TASK`"), "{status} {error}");
    let path = format!("/approvals/{}", task.as_str().unwrap());
    for (user, expected) in [("ada", (200, &shown[0])), ("bob", (404, &Value::Null))] {
        let found = answer(runner.client.get(runner.url(&path)).header("x-recif-user", user)).await;
        assert_eq!(found.0, expected.0, "{user}: {}", found.1);
        assert!(found.0 == 404 || found.1 == *expected.1, "{user}: {}", found.1);
    }

    for (user, approvals, expected) in [
        ("bob", approve("call_1"), 404),
        ("", approve("call_1"), 404),
        ("ada", json!([]), 400),
        ("ada", approve("call_2"), 400),
        ("ada", json!([{"id": "call_1", "approved": true}, {"id": "call_1", "approved": false}]), 400),
        ("ada", json!("yes"), 400),
    ] {
        let (status, answer) = runner.decide(user, task, approvals.clone()).await;
        assert_eq!((status, bank.payments()), (expected, 0), "{user} {approvals}: {answer}");
    }
    assert_eq!(runner.decide("ada", &json!("%00"), approve("call_1")).await.0, 404, "no text of PostgreSQL");
    let (status, answer) = runner.decide("ada", task, approve("call_1")).await;
    assert_eq!((status, &answer["reply"], bank.payments()), (200, &json!("paid 1"), 1), "{answer}");
    assert_eq!(answer["conversation_id"], waits["conversation_id"]);
    assert_eq!(bank.last_key(), Some(format!("{}.call_1", task.as_str().unwrap())));
    assert_eq!(runner.decide("ada", task, approve("call_1")).await.0, 404, "the turn has ended");
    assert_eq!(bank.payments(), 1);
}

#[tokio::test]
async fn the_model_hears_of_a_rejection_and_of_one_that_came_too_late() {
    let bank = Bank::open().await;
    let runner = bank.agent(None).await;
    let (_, waits) = runner.chat_as("ada", "/tool pay {}").await;
    let (status, rejected) = runner.decide("ada", &waits["task"], reject("call_1", "too much")).await;
    assert_eq!((status, &rejected["reply"]), (200, &json!("tool pay failed: rejected by ada: too much")));

    let (status, waits) = runner.chat(json!({"message": "/tool hasty {}", "conversation_id": "c"})).await;
    assert_eq!(status, 202, "{waits}");
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        // The sweep ends the turn; before that, no user can decide any more.
        match runner.decide("", &waits["task"], json!([{"id": "another", "approved": true}])).await.0 {
            404 => break,
            status => assert!(status == 400 && begun.elapsed() < SOON, "{status}"),
        }
    }
    assert_eq!(bank.payments(), 0);
    assert_eq!(runner.chat(json!({"message": "hi", "conversation_id": "c"})).await.1["reply"], "echo: hi");
}

#[tokio::test]
async fn a_stream_tells_what_waits() {
    let bank = Bank::open().await;
    let runner = bank.agent(None).await;
    let events = runner.events("/tool pay {}").await;
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["", "approval", "done"], "{events:?}");
    let asked = &events[1].1;
    assert_eq!((&asked["approval"]["tools"][0]["name"], asked["conversation_id"].is_string()), (&json!("pay"), true));
    let (status, answer) = runner.decide("", &asked["task"], approve("call_1")).await;
    assert_eq!((status, &answer["reply"]), (200, &json!("paid 1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_turn_survives_its_process_and_of_two_decisions_one_counts() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let first = bank.agent(Some(&server)).await;
    let (status, waits) = first.chat_as("ada", "/tool pay {}").await;
    assert_eq!(status, 202, "{waits}");
    first.serving.abort();
    let (one, other) = (bank.agent(Some(&server)).await, bank.agent(Some(&server)).await);
    let task = &waits["task"];
    let (yes, no) =
        tokio::join!(one.decide("ada", task, approve("call_1")), other.decide("ada", task, reject("call_1", "no")));
    let (won, lost) = if yes.0 == 200 { (&yes, &no) } else { (&no, &yes) };
    assert_eq!(won.0, 200, "{yes:?} {no:?}");
    assert!(matches!(lost.0, 404 | 409), "{yes:?} {no:?}");
    assert_eq!(bank.payments(), usize::from(yes.0 == 200));

    let mut connection = server.connect().await;
    let rows = connection.fetch_one("SELECT count(*) FROM recif_parked").await.unwrap();
    assert_eq!(rows.get::<i64, _>(0), 0);
    let turns = connection.fetch_all("SELECT messages FROM recif_turns").await.unwrap();
    assert_eq!(turns.len(), 1, "the turn was stored once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_started_is_sent_again_only_if_two_have_the_effect_of_one() {
    for (tool, expected, payments) in [("pay", "its effect is unknown", 0), ("set", "paid 1", 1)] {
        let (server, bank) = (PostgresServer::start().await, Bank::open().await);
        let runner = bank.agent(Some(&server)).await;
        let (status, waits) = runner.chat_as("ada", &format!("/tool {tool} {{}}")).await;
        assert_eq!(status, 202, "{waits}");
        let mut connection = server.connect().await;
        // As a process leaves it that dies between the record and the answer.
        connection
            .execute(
                r#"UPDATE recif_parked SET ruling = '{"by":"ada","calls":{"call_1":"approved"}}',
                   progress = '{"call_1":"started"}'"#,
            )
            .await
            .unwrap();
        let begun = Instant::now();
        let turns = loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let turns = connection.fetch_all("SELECT messages FROM recif_turns").await.unwrap();
            if !turns.is_empty() {
                break turns;
            }
            assert!(begun.elapsed() < SOON, "no process continued the turn");
        };
        let messages: String = turns[0].get("messages");
        assert!(messages.contains(expected), "{messages}");
        assert_eq!(bank.payments(), payments, "{tool}");
    }
}
