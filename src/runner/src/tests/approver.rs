//! Calls that an approver decides on, at each door.

use std::time::{Duration, Instant};

use ::a2a::HITL_EXTENSION;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use testing::postgres::PostgresServer;

use super::{
    Runner,
    a2a::{message, state},
    approval::{Bank, answer, approve, database, reject},
    approval_edges::{SOON, park, yes},
};
use crate::{agent::Agent, caller::CallerContext, parking::DecisionError, tools::Decider, usage::UsageLedger};

/// Refusal of one who asked, or has not the right to approve.
const NOT_APPROVER: &str = "an approver other than the caller decides this: it takes the right to create agents/approve, which the \
                            ClusterRole recif-approver gives";

/// Text of a decision that is kept.
const KEPT: &str = "[decided: the turn goes on with the next request of its own caller]";

/// Returns a request of this user as the sidecar forwards it: an approver's name ends in `!`, and an empty name is none.
fn by(request: reqwest::RequestBuilder, user: &str) -> reqwest::RequestBuilder {
    let named = match user.strip_suffix('!') {
        Some(name) => request.header("x-recif-approver", "true").header("x-recif-user", name),
        None => request.header("x-recif-user", user),
    };
    named.header("x-tenant", format!("{user} itself"))
}

/// Returns the tools of a bank, whose calls have headers of the caller's request.
fn forwarding(bank: &Bank) -> String {
    let mut tools = bank.tools();
    for tool in tools.as_array_mut().unwrap() {
        tool["forwardHeaders"] = json!(["X-Tenant", "X-Recif-User"]);
    }
    tools.to_string()
}

impl Runner {
    /// Sends a decision of this user.
    async fn decide_by(&self, user: &str, task: &Value, approvals: Value) -> (u16, Value) {
        let path = format!("/approvals/{}", task.as_str().unwrap());
        let request = by(self.client.post(self.url(&path)), user);
        answer(request.body(json!({ "approvals": approvals }).to_string())).await
    }

    /// Returns the response to a JSON-RPC request of this user, which activates the extension for decisions.
    async fn rpc_by(&self, user: &str, method: &str, params: &Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let request = self.client.post(self.url("/")).header("a2a-version", "1.0").body(body);
        answer(by(request.header("a2a-extensions", HITL_EXTENSION), user)).await.1
    }

    /// Returns what waits for this user.
    async fn waiting_for(&self, user: &str) -> (u16, Value) {
        let (status, mut listed) = answer(by(self.client.get(self.url("/approvals")), user)).await;
        (status, listed["approvals"].take())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_who_did_not_ask_decides() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    for more in [Vec::new(), database(&server.url("postgres")).to_vec()] {
        let (runner, before) = (bank.agent_with(&more).await, bank.payments());
        let (status, waits) = answer(by(
            runner.client.post(runner.url("/chat")).body(json!({ "message": "/tool audit {}" }).to_string()),
            "ada!",
        ))
        .await;
        assert_eq!((status, &waits["approval"]["by"]), (202, &json!("Approver")), "{waits}");
        assert_eq!(waits["reply"], "[waiting until an approver other than you approves `audit`]");
        let task = &waits["task"];
        for (user, listed) in [("ada", 1), ("ada!", 1), ("bob", 0), ("bob!", 1)] {
            let (status, found) = runner.waiting_for(user).await;
            assert_eq!((status, found.as_array().unwrap().len()), (200, listed), "{user}");
            assert!(listed == 0 || found[0]["user"] == "ada" && found[0]["task"] == *task, "{user}: {found}");
        }
        assert_eq!(runner.waiting_for("").await.0, 403);
        assert_eq!(runner.waiting_for("!").await.0, 403, "an approver has a name");
        let path = runner.url(&format!("/approvals/{}", task.as_str().unwrap()));
        for (user, expected) in [("ada", 200), ("bob", 404), ("bob!", 200), ("!", 404)] {
            assert_eq!(answer(by(runner.client.get(&path), user)).await.0, expected, "{user}");
        }
        for (user, why) in [
            ("ada", NOT_APPROVER),
            ("ada!", NOT_APPROVER),
            ("bob", NOT_APPROVER),
            ("", "sign in to approve: the gateway needs --auth kubernetes"),
            ("!", "sign in to approve: the gateway needs --auth kubernetes"),
        ] {
            let (status, refused) = runner.decide_by(user, task, approve("call_1")).await;
            assert_eq!((status, &refused["error"], bank.payments()), (403, &json!(why), before), "{user}");
        }
        let (status, paid) = runner.decide_by("bob!", task, approve("call_1")).await;
        assert_eq!((status, bank.payments()), (200, before + 1), "{paid}");
        let history = json!({ "message": "hi", "conversation_id": waits["conversation_id"] }).to_string();
        let next = answer(by(runner.client.post(runner.url("/chat")).body(history), "ada")).await;
        assert_eq!(next.0, 200, "the conversation is still that of its caller: {}", next.1);

        let (_, waits) = runner.chat_as("ada", "/tool audit {}").await;
        let id = waits["approval"]["tools"][0]["id"].as_str().unwrap();
        let (status, rejected) = runner.decide_by("bob!", &waits["task"], reject(id, "no")).await;
        assert_eq!((status, &rejected["reply"]), (200, &json!("tool audit failed: rejected by bob: no")));
        assert_eq!(bank.payments(), before + 1);
    }
}

#[tokio::test]
async fn an_approver_decides_in_the_place_of_the_caller_and_a_stranger_does_not() {
    let bank = Bank::open().await;
    let runner = bank.agent(None).await;
    let (_, waits) = runner.chat_as("ada", "/tool pay {}").await;
    assert_eq!(runner.decide_by("bob", &waits["task"], approve("call_1")).await.0, 404);
    let (status, paid) = runner.decide_by("bob!", &waits["task"], approve("call_1")).await;
    assert_eq!((status, &paid["reply"], bank.payments()), (200, &json!("paid 1"), 1), "{paid}");

    // One without a name began it.
    let (status, anonymous) = runner.chat(json!({ "message": "/tool audit {}" })).await;
    assert_eq!(status, 202, "{anonymous}");
    let (status, refused) = runner.decide("", &anonymous["task"], approve("call_1")).await;
    assert_eq!((status, bank.payments()), (403, 1), "{refused}");
    assert_eq!(runner.decide_by("bob!", &anonymous["task"], approve("call_1")).await.0, 200);
}

#[tokio::test]
async fn a_stream_and_a_task_of_a2a_say_that_an_approver_has_to_decide() {
    let bank = Bank::open().await;
    let runner = bank.agent_with(&[("RECIF_NAMESPACE", "team".to_owned())]).await;
    let events = runner.events("/tool audit {}").await;
    let asked = events.iter().find(|(name, _)| name == "approval").unwrap();
    assert_eq!(asked.1["approval"]["by"], "Approver", "{events:?}");

    let mut sent = runner.rpc_by("ada!", "SendMessage", &message("/tool audit {}")).await;
    let task = sent["result"]["task"].take();
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED", "{task}");
    let said = &task["status"]["message"];
    let expected = "waiting until an approver other than you approves `audit`: recif approve agent/shop -n team";
    assert_eq!(said["parts"][0]["text"], expected);
    let waiting = &said["metadata"]["recif.dev/waiting"];
    let mut decision = message("decided");
    decision["message"]["taskId"] = task["id"].clone();
    let approvals = approve("call_1");
    decision["message"]["metadata"] =
        json!({ HITL_EXTENSION: { "type": "tool_approval_response", "approvals": approvals } });
    let refused = runner.rpc_by("ada!", "SendMessage", &decision).await;
    assert_eq!((&refused["error"]["code"], &refused["error"]["message"]), (&json!(-32004), &json!(NOT_APPROVER)));
    let others = runner.rpc_by("bob!", "SendMessage", &decision).await;
    assert_eq!(others["error"]["code"], -32001, "a task is its own user's, also for an approver: {others}");
    assert_eq!(bank.payments(), 0);
    assert_eq!(runner.decide_by("ada!", &waiting["task"], approve("call_1")).await.0, 403);
    assert_eq!(runner.decide_by("bob!", &waiting["task"], approve("call_1")).await.0, 200);
    let shown = runner.rpc_by("ada", "GetTask", &json!({ "id": task["id"] })).await;
    assert_eq!(state(&shown["result"]), "TASK_STATE_COMPLETED", "{shown}");
}

#[tokio::test]
async fn no_header_of_an_approver_reaches_a_tool() {
    let bank = Bank::open().await;
    let runner = bank.agent_with(&[("CORAIL_TOOLS", forwarding(&bank))]).await;
    let chat = runner.client.post(runner.url("/chat")).body(json!({ "message": "/tool audit {}" }).to_string());
    let (status, waits) = answer(by(chat, "ada")).await;
    assert_eq!(status, 202, "{waits}");
    let task = &waits["task"];
    for _ in 0..2 {
        let (status, kept) = runner.decide_by("bob!", task, approve("call_1")).await;
        assert_eq!((status, &kept["decided"], bank.payments()), (202, &json!(true), 0), "{kept}");
        assert_eq!(kept["reply"], KEPT);
    }
    let stream = runner.client.post(runner.url(&format!("/approvals/{}", task.as_str().unwrap())));
    let stream = by(stream, "bob!").header("accept", "text/event-stream");
    let stream = stream.body(json!({ "approvals": approve("call_1") }).to_string()).send().await.unwrap();
    let events = stream.text().await.unwrap();
    assert!(events.contains("[decided: ") && events.contains("event: done"), "{events}");
    assert_eq!(runner.decide_by("eve!", task, approve("call_1")).await.0, 409);
    let (status, refused) = runner.decide_by("ada", task, reject("call_1", "no")).await;
    assert_eq!((status, bank.payments()), (403, 0), "the caller only goes on: {refused}");
    let (status, paid) = runner.decide_by("ada", task, json!([])).await;
    assert_eq!((status, bank.payments()), (200, 1), "{paid}");
    assert_eq!(bank.last_header("x-tenant").as_deref(), Some("ada itself"));
    assert_eq!(bank.last_header("x-recif-user").as_deref(), Some("ada"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_decision_is_kept_goes_on_as_its_caller_gets_the_task() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    for more in [Vec::new(), database(&server.url("postgres")).to_vec()] {
        let forwarding = [("CORAIL_TOOLS", forwarding(&bank))];
        let (runner, before) = (bank.agent_with(&[&forwarding[..], &more[..]].concat()).await, bank.payments());
        let mut sent = runner.rpc_by("ada", "SendMessage", &message("/tool audit {}")).await;
        let task = sent["result"]["task"].take();
        let get = json!({ "id": task["id"] });
        let waits = runner.rpc_by("ada", "GetTask", &get).await;
        assert_eq!(state(&waits["result"]), "TASK_STATE_INPUT_REQUIRED", "{waits}");
        let waiting = &task["status"]["message"]["metadata"]["recif.dev/waiting"];
        let id = waiting["approval"]["tools"][0]["id"].as_str().unwrap();
        let (status, kept) = runner.decide_by("bob!", &waiting["task"], approve(id)).await;
        assert_eq!((status, &kept["reply"], bank.payments()), (202, &json!(KEPT), before), "{kept}");

        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": get }).to_string();
        let request = runner.client.post(runner.url("/")).header("a2a-version", "1.0").header("x-recif-user", "ada");
        let (_, shown) = answer(request.body(body)).await;
        assert_eq!(state(&shown["result"]), "TASK_STATE_WORKING", "a request without the header: {shown}");
        assert_eq!(runner.rpc_by("bob!", "GetTask", &get).await["error"]["code"], -32001);
        let begun = Instant::now();
        loop {
            let shown = runner.rpc_by("ada", "GetTask", &get).await;
            if state(&shown["result"]) == "TASK_STATE_COMPLETED" {
                break;
            }
            assert_eq!(state(&shown["result"]), "TASK_STATE_WORKING", "{shown}");
            assert!(begun.elapsed() < SOON, "{shown}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((bank.payments(), bank.last_header("x-tenant").as_deref()), (before + 1, Some("ada itself")));
    }
}

#[tokio::test]
async fn a_kept_decision_is_reported_with_the_request_of_its_approver_and_counted_once() {
    let bank = Bank::open().await;
    let runner = bank.agent_with(&[("CORAIL_TOOLS", forwarding(&bank))]).await;
    let chat = runner.client.post(runner.url("/chat")).body(json!({ "message": "/tool audit {}" }).to_string());
    let (_, waits) = answer(by(chat, "ada")).await;
    let task = waits["task"].as_str().unwrap();
    let expected = format!("task=\"{task}\", approved=\"call_1\"");
    for (user, approvals, status, reported) in [
        ("bob!", approve("call_1"), 202, Some(expected.as_str())),
        ("bob!", approve("call_1"), 202, Some(expected.as_str())),
        ("ada", json!([]), 200, None),
    ] {
        let request = by(runner.client.post(runner.url(&format!("/approvals/{task}"))), user);
        let response = request.body(json!({ "approvals": approvals }).to_string()).send().await.unwrap();
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!((response.status().as_u16(), header("x-recif-approval")), (status, reported), "{user}");
        let pending = header("x-recif-approvals").unwrap();
        assert!(pending.ends_with(", calls=0"), "{user}: no call waits for a decision: {pending}");
    }
    let (_, metrics) = runner.get("/metrics").await;
    let counted = r#"recif_runner_approvals_total{outcome="approved"} 1"#;
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
}

#[tokio::test]
async fn a_turn_that_an_approver_decided_goes_on_as_that_of_its_caller() {
    let bank = Bank::open().await;
    let (agent, ledger) = (bank.agent_alone(&[]), UsageLedger::default());
    let task = park(&agent, "/tool pay {}", &HeaderMap::new(), &ledger).await;
    let sent =
        [("x-recif-user", "bob"), ("x-recif-approver", "true"), ("authorization", "Bearer k"), ("x-tenant", "red")];
    let sent = sent.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let bob = CallerContext::from_headers(HeaderMap::from_iter(sent));
    assert!(bob.is_approver);
    let claimed = agent.decide(&task, &bob, yes()).await.unwrap();
    assert_eq!(claimed.turn.by, Decider::Caller);
    let caller = Agent::caller_of(&claimed, bob, &ledger);
    assert_eq!((caller.user.as_deref(), caller.account.caller()), (Some("ada"), "ada"));
    assert!(!caller.is_approver && caller.key.is_none() && !caller.headers.has("x-tenant"));
    let own = CallerContext { user: Some("ada".into()), ..CallerContext::default() };
    let refused = agent.decide(&task, &own, yes()).await.unwrap_err();
    assert!(matches!(refused, DecisionError::Busy), "the caller would only go on: {refused}");
}
