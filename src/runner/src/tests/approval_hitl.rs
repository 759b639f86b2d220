//! Tools whose calls a person approves by a message of Agent2Agent, in both versions of the protocol.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ::a2a::{HITL_EXTENSION, WAITING};
use axum::{Router, routing::any};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use sqlx::{Executor, Row};
use testing::postgres::PostgresServer;
use tokio::{net::TcpListener, sync::Notify};

use super::{
    Runner,
    a2a::{message, results, state},
    approval::{Bank, answer, approve, database, reject},
    approval_edges::SOON,
    approval_rounds::model,
};

/// Names of one version of the protocol.
struct ProtocolNames {
    version: &'static str,
    extensions: &'static str,
    send: &'static str,
    stream: &'static str,
    get: &'static str,
    waits: &'static str,
    works: &'static str,
    completed: &'static str,
}

static V1: ProtocolNames = ProtocolNames {
    version: "1.0",
    extensions: "a2a-extensions",
    send: "SendMessage",
    stream: "SendStreamingMessage",
    get: "GetTask",
    waits: "TASK_STATE_INPUT_REQUIRED",
    works: "TASK_STATE_WORKING",
    completed: "TASK_STATE_COMPLETED",
};

static V03: ProtocolNames = ProtocolNames {
    version: "0.3",
    extensions: "x-a2a-extensions",
    send: "message/send",
    stream: "message/stream",
    get: "tasks/get",
    waits: "input-required",
    works: "working",
    completed: "completed",
};

impl ProtocolNames {
    /// Returns a JSON-RPC request of this user that does not activate the extension.
    fn plain(&self, runner: &Runner, user: &str, method: &str, params: &Value) -> RequestBuilder {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let request = runner.client.post(runner.url("/")).header("x-recif-user", user);
        request.header("a2a-version", self.version).body(body)
    }

    /// Returns one that activates it.
    fn request(&self, runner: &Runner, user: &str, method: &str, params: &Value) -> RequestBuilder {
        self.plain(runner, user, method, params).header(self.extensions, HITL_EXTENSION)
    }

    /// Returns the object of a result, which 1.0 holds in a field.
    fn object(&self, mut result: Value, field: &str) -> Value {
        if self.version == "1.0" { result[field].take() } else { result }
    }

    /// Sends a message of `ada`, and returns its task.
    async fn send(&self, runner: &Runner, params: &Value) -> Value {
        let mut answer = answer(self.request(runner, "ada", self.send, params)).await.1;
        assert!(answer["error"].is_null(), "{answer}");
        self.object(answer["result"].take(), "task")
    }

    /// Sends a message of this user that is refused, and returns the code and the text of the error.
    async fn refused(&self, runner: &Runner, user: &str, params: &Value) -> (i64, String) {
        let answer = answer(self.request(runner, user, self.send, params)).await.1;
        let error = &answer["error"];
        (error["code"].as_i64().unwrap_or_default(), error["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns a task of `ada` as it is now.
    async fn get(&self, runner: &Runner, task: &Value) -> Value {
        let about = json!({ "id": task["id"] });
        answer(self.request(runner, "ada", self.get, &about)).await.1["result"].take()
    }
}

/// Returns the message that decides on the calls of a task.
fn decision(task: &Value, approvals: &Value) -> Value {
    let mut decision = message("decided");
    let said = &mut decision["message"];
    (said["taskId"], said["contextId"]) = (task["id"].clone(), task["contextId"].clone());
    said["extensions"] = json!([HITL_EXTENSION]);
    said["metadata"] = json!({ HITL_EXTENSION: { "type": "tool_approval_response", "approvals": approvals } });
    decision
}

/// Returns what a task asks a person.
fn asked(task: &Value) -> &Value {
    &task["status"]["message"]["metadata"][HITL_EXTENSION]
}

fn text(task: &Value) -> &str {
    task["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_message_decides_on_the_calls_that_a_task_asks_a_person_to_approve() {
    for names in [&V1, &V03] {
        let bank = Bank::open().await;
        let shop = bank.agent(None).await;
        let card: Value = serde_json::from_str(&shop.get("/.well-known/agent-card.json").await.1).unwrap();
        let offered = card["capabilities"]["extensions"].as_array().unwrap();
        assert_eq!((&offered[0]["uri"], &offered[0]["required"]), (&json!(HITL_EXTENSION), &json!(false)), "{card}");

        let first = message(r#"/tool pay {"euros": 5}"#);
        let response = names.request(&shop, "ada", names.send, &first).send().await.unwrap();
        assert_eq!(response.headers()[names.extensions], HITL_EXTENSION, "the client sees that it is active");
        let mut body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        let task = names.object(body["result"].take(), "task");
        let said = &task["status"]["message"];
        assert_eq!((state(&task), &said["extensions"]), (names.waits, &json!([HITL_EXTENSION])), "{task}");
        let call = json!({ "id": "call_1", "call_id": "call_1", "name": "pay", "args": { "euros": 5 } });
        let hint = &said["parts"][0]["text"];
        assert!(hint.as_str().unwrap().starts_with("waiting until you approve `pay`"), "{hint}");
        let request = json!({ "type": "tool_approval_request", "hint": hint, "tools": [call] });
        assert_eq!(asked(&task), &request);
        assert_eq!(&names.get(&shop, &task).await["status"]["message"], said);

        let mut other_context = decision(&task, &approve("call_1"));
        other_context["message"]["contextId"] = json!("another");
        let mut no_task = decision(&task, &approve("call_1"));
        no_task["message"].as_object_mut().unwrap().remove("taskId");
        let mut question = decision(&task, &approve("call_1"));
        question["message"]["metadata"][HITL_EXTENSION]["type"] = json!("ask_user_response");
        let twice = json!([{ "id": "call_1", "approved": true }, { "id": "call_1", "approved": false }]);
        for (user, params, code, expected) in [
            ("ada", decision(&task, &json!([])), -32602, "must name each call that waits"),
            ("ada", decision(&task, &approve("call_2")), -32602, "names a call that does not wait"),
            ("ada", decision(&task, &twice), -32602, "names a call twice"),
            ("ada", decision(&task, &json!("yes")), -32602, "invalid type: string"),
            ("ada", question, -32602, "its `type` must be `tool_approval_response`"),
            ("ada", other_context, -32602, "is of another context"),
            ("ada", no_task, -32602, "name it in `message.taskId`"),
            ("bob", decision(&task, &approve("call_1")), -32001, "unknown task"),
        ] {
            let (found, why) = names.refused(&shop, user, &params).await;
            assert_eq!((found, bank.payments()), (code, 0), "{params}: {why}");
            assert!(why.contains(expected), "{params}: {why}");
        }

        let done = names.send(&shop, &decision(&task, &approve("call_1"))).await;
        assert_eq!((state(&done), text(&done), bank.payments()), (names.completed, "paid 1", 1), "{done}");
        assert_eq!((&done["id"], &done["contextId"]), (&task["id"], &task["contextId"]), "it is the same task");
        let shown = names.get(&shop, &task).await;
        assert_eq!((state(&shown), text(&shown)), (names.completed, "paid 1"), "{shown}");
        let (code, why) = names.refused(&shop, "ada", &decision(&task, &approve("call_1"))).await;
        assert!(code == -32004 && why.contains("takes no further message"), "{code} {why}");

        let mut next = message("/tool pay {}");
        next["message"]["contextId"] = task["contextId"].clone();
        let next = names.send(&shop, &next).await;
        let id = asked(&next)["tools"][0]["id"].as_str().unwrap();
        let done = names.send(&shop, &decision(&next, &reject(id, "too much"))).await;
        let told = (text(&done), bank.payments());
        assert_eq!(told, ("tool pay failed: rejected by ada: too much", 1), "{done}");
    }
}

#[tokio::test]
async fn without_the_extension_a_task_has_its_text_alone() {
    let bank = Bank::open().await;
    let (shop, plain) = (bank.agent(None).await, Runner::with(&[]).await);
    let response = V1.request(&plain, "ada", V1.send, &message("hi")).send().await.unwrap();
    assert_eq!(response.headers().get(V1.extensions), None, "no tool of this agent asks a person");
    let card: Value = serde_json::from_str(&plain.get("/.well-known/agent-card.json").await.1).unwrap();
    assert_eq!(card["capabilities"].get("extensions"), None, "{card}");

    for names in [&V1, &V03] {
        let payments = bank.payments();
        let response = names.plain(&shop, "ada", names.send, &message("/tool pay {}")).send().await.unwrap();
        assert_eq!(response.headers().get(names.extensions), None);
        let mut body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        let task = names.object(body["result"].take(), "task");
        let said = &task["status"]["message"];
        assert_eq!((state(&task), said.get("extensions")), (names.waits, None), "{task}");
        let keys: Vec<_> = said["metadata"].as_object().unwrap().keys().collect();
        assert_eq!(keys, [WAITING], "{task}");
        let decided = names.plain(&shop, "ada", names.send, &decision(&task, &approve("call_1")));
        let refused = answer(decided).await.1;
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(refused["error"]["code"] == -32004 && why.starts_with("no text decides on task"), "{refused}");
        assert_eq!(bank.payments(), payments);
        // Which client began the turn makes no difference to the one that decides.
        assert_eq!(asked(&names.get(&shop, &task).await)["tools"][0]["name"], "pay");
        assert_eq!(state(&names.send(&shop, &decision(&task, &approve("call_1"))).await), names.completed);
    }
}

#[tokio::test]
async fn the_answer_to_a_decision_is_streamed() {
    for names in [&V1, &V03] {
        let bank = Bank::open().await;
        let shop = bank.agent(None).await;
        let task = names.send(&shop, &message("/tool pay {}")).await;
        let decided = names.request(&shop, "ada", names.stream, &decision(&task, &approve("call_1")));
        let response = decided.send().await.unwrap();
        assert_eq!(response.headers()[names.extensions], HITL_EXTENSION);
        let mut events = results(response).await;
        let (first, last) = (events.remove(0), events.pop().unwrap());
        let (first, last) = (names.object(first, "task"), names.object(last, "statusUpdate"));
        assert_eq!((&first["id"], state(&last)), (&task["id"], names.completed), "{first} {last}");
        let pieces = events.into_iter().map(|event| names.object(event, "artifactUpdate"));
        let pieces = pieces.map(|event| event["artifact"]["parts"][0]["text"].as_str().unwrap().to_owned());
        assert_eq!((text(&first).to_owned() + &pieces.collect::<String>(), bank.payments()), ("paid 1".into(), 1));
    }
}

#[tokio::test]
async fn a_task_that_asks_again_takes_no_decision_on_the_calls_before() {
    let bank = Bank::open().await;
    let shop = bank.agent_with(&model().await).await;
    let first = V1.send(&shop, &message("pay twice")).await;
    assert_eq!(asked(&first)["tools"][0]["args"], json!({ "euros": 1 }), "{first}");
    let second = V1.send(&shop, &decision(&first, &approve("call_0"))).await;
    let call = &asked(&second)["tools"][0];
    assert_eq!((state(&second), &second["id"]), (V1.waits, &first["id"]), "{second}");
    assert_eq!((&call["args"], text(&second), bank.payments()), (&json!({ "euros": 2 }), "", 1), "{second}");
    let (code, why) = V1.refused(&shop, "ada", &decision(&first, &approve("call_0"))).await;
    assert_eq!((code, bank.payments()), (-32602, 1), "{why}");
    let done = V1.send(&shop, &decision(&second, &approve(call["id"].as_str().unwrap()))).await;
    assert_eq!((state(&done), text(&done), bank.payments()), (V1.completed, "done", 2), "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_decisions_by_messages_the_first_counts_at_every_replica() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let (one, other) = (bank.agent(Some(&server)).await, bank.agent(Some(&server)).await);
    let task = V1.send(&one, &message("/tool pay {}")).await;
    assert_eq!(asked(&V1.get(&other, &task).await), asked(&task));
    let (yes, no) = (decision(&task, &approve("call_1")), decision(&task, &reject("call_1", "no")));
    let (yes, no) = tokio::join!(V1.refused(&one, "ada", &yes), V1.refused(&other, "ada", &no));
    let (won, lost) = if yes.0 == 0 { (&yes, &no) } else { (&no, &yes) };
    assert_eq!((won.0, lost.0, bank.payments()), (0, -32004, usize::from(yes.0 == 0)), "{yes:?} {no:?}");
    for replica in [&one, &other] {
        assert_eq!(state(&V1.get(replica, &task).await), V1.completed);
    }

    let task = V1.send(&one, &message("/tool pay {}")).await;
    let mut connection = server.connect().await;
    // As another process has it that goes on with the turn.
    let claimed = r#"UPDATE recif_parked SET ruling = '{"by":"ada","calls":{"call_1":"approved"}}', claim = 'x',
        claimed_until = now() + interval '1 hour'"#;
    connection.execute(claimed).await.unwrap();
    for (approvals, expected) in
        [(reject("call_1", "no"), "already decided by ada"), (approve("call_1"), "this decision is being carried out")]
    {
        let (code, why) = V1.refused(&other, "ada", &decision(&task, &approvals)).await;
        assert!(code == -32004 && why.starts_with(expected), "{code} {why}");
    }
    assert_eq!(state(&V1.get(&other, &task).await), V1.works);
}

#[tokio::test]
async fn a_decision_that_comes_too_late_is_refused() {
    let bank = Bank::open().await;
    let shop = bank.agent(None).await;
    let task = V1.send(&shop, &message("/tool hasty {}")).await;
    let begun = Instant::now();
    while state(&V1.get(&shop, &task).await) == V1.waits {
        assert!(begun.elapsed() < SOON, "it did not expire");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (code, why) = V1.refused(&shop, "ada", &decision(&task, &approve("call_1"))).await;
    // The sweep may have ended the turn meanwhile.
    let is_late = why.starts_with("no user decided in time") || why.contains("takes no further message");
    assert!(code == -32004 && is_late && bank.payments() == 0, "{code} {why}");
}

/// Returns the tool `pay`, which asks its caller, and whose calls end one by one as the gate is opened.
async fn gated(gate: &Arc<Notify>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let closed = gate.clone();
    let pay = move || async move {
        closed.notified().await;
        "paid"
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", any(pay))).await });
    let approval = json!({ "when": "Always", "by": "Caller", "timeout": 60 });
    json!([{ "name": "pay", "type": "http", "method": "POST", "endpoint": url, "approval": approval }]).to_string()
}

/// Takes the claim on a turn away by this statement, as if its process had been stopped for long while the call was made.
async fn take_claim(server: &PostgresServer, statement: &'static str) {
    let mut connection = server.connect().await;
    let begun = Instant::now();
    while connection.execute(statement).await.unwrap().rows_affected() == 0 {
        assert!(begun.elapsed() < SOON, "the call was not made");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_decided_gets_the_answer_though_another_process_goes_on_with_the_turn() {
    let (server, bank, gate) = (PostgresServer::start().await, Bank::open().await, Arc::new(Notify::new()));
    let more = [&[("CORAIL_TOOLS", gated(&gate).await)][..], &database(&server.url("postgres"))].concat();
    let shop = bank.agent_with(&more).await;
    let task = V1.send(&shop, &message("/tool pay {}")).await;

    let decided = decision(&task, &approve("call_1"));
    let take_over = async {
        let lost = "UPDATE recif_parked SET claim = 'x', claimed_until = 'epoch' WHERE progress LIKE '%started%'";
        take_claim(&server, lost).await;
        let (mut connection, begun) = (server.connect().await, Instant::now());
        let ended = "SELECT count(*) FROM recif_turns";
        while connection.fetch_one(ended).await.unwrap().get::<i64, _>(0) == 0 {
            assert!(begun.elapsed() < SOON, "the sweep did not go on with the turn");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        gate.notify_one();
    };
    let (done, ()) = tokio::join!(V1.send(&shop, &decided), take_over);
    let unknown = "tool pay failed: the runtime died while it ran: its effect is unknown";
    assert_eq!((state(&done), text(&done)), (V1.completed, unknown), "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_not_told_that_a_turn_failed_which_goes_on_at_another_process() {
    let server = PostgresServer::start().await;
    for method in [V1.send, V1.stream] {
        let (gate, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let tools = [("CORAIL_AGENT_NAME", "shop".to_owned()), ("CORAIL_TOOLS", gated(&gate).await)];
        let variables = [&tools[..], &database(&server.url("postgres"))].concat();
        let stopped = stop.clone();
        let stopped = async move { stopped.notified().await };
        let shop = Runner::with_stop(stopped, Duration::from_secs(60), &variables).await;
        assert_eq!(shop.get("/readyz").await.0, 200);
        let task = V1.send(&shop, &message("/tool pay {}")).await;

        let decided = decision(&task, &approve("call_1"));
        let request = V1.request(&shop, "ada", method, &decided);
        let take_over = async {
            let lost = "UPDATE recif_parked SET claim = 'x', claimed_until = now() + interval '1 hour'
                WHERE progress LIKE '%started%'";
            take_claim(&server, lost).await;
            gate.notify_one();
            stop.notify_one();
        };
        let (response, ()) = tokio::join!(request.send(), take_over);
        let response = response.unwrap();
        if method == V1.stream {
            let events = results(response).await;
            let states: Vec<_> = events.iter().map(|event| state(&event["task"])).collect();
            assert_eq!(states, [V1.works], "it breaks off: {events:?}");
        } else {
            assert_eq!(response.status(), 503);
            let refused: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
            let why = refused["error"]["message"].as_str().unwrap();
            assert!(why.starts_with("another replica goes on with this turn"), "{refused}");
        }
        server.connect().await.execute("DELETE FROM recif_parked").await.unwrap();
    }
}
